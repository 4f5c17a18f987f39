"""Draw the examples of one training seed."""

from glint.config.corpus import CorpusJob
from glint.files import replacing
from glint.tasks.corpus import draw_examples
from pipeline.job import arguments, job


def main() -> None:
    """Read the recipe, draw, write `out` (Parquet)."""
    given = arguments(__doc__, "out recipe")
    with job(given, given.recipe):
        asked = CorpusJob.model_validate_json(given.job)
        examples = draw_examples(asked.corpus, asked.seed)
        with replacing(given.out) as path:
            examples.to_parquet(path, index=False)


if __name__ == "__main__":
    main()
