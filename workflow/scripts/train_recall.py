"""One run of a recall study: train a model to recall names, and score it at every checkpoint."""

from glint.config.recall import RecallJob
from glint.train.recall import train
from pipeline.job import arguments, job


def main() -> None:
    """Read the recipe, train, write every result to the folder `out`."""
    given = arguments(__doc__, "out recipe")
    with job(given, given.recipe):
        train(RecallJob.model_validate_json(given.job), given.out)


if __name__ == "__main__":
    main()
