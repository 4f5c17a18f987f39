"""One run of a pretraining study: draw expressions, train a model on them, score it at every checkpoint."""

from glint.config.expressions import ExpressionsJob
from glint.train.expressions import train
from glint.verify.pool import VerifierError
from pipeline.job import arguments, job


def main() -> None:
    """Read the recipe, train, write every result to the folder `out`."""
    given = arguments(__doc__, "out recipe")
    with job(given, given.recipe, VerifierError):
        train(ExpressionsJob.model_validate_json(given.job), given.out)


if __name__ == "__main__":
    main()
