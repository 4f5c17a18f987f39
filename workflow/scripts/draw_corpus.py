"""Draw the examples of one training seed."""

from glint.config.corpus import CorpusJob
from glint.files import write_parquet
from glint.tasks.corpus import draw_examples
from pipeline.job import arguments, job


def main() -> None:
    """Read the recipe, draw, write `out` (Parquet)."""
    given = arguments(__doc__, "out recipe")
    with job(given, given.recipe):
        asked = CorpusJob.model_validate_json(given.job)
        write_parquet(given.out, draw_examples(asked.corpus, asked.seed))


if __name__ == "__main__":
    main()
