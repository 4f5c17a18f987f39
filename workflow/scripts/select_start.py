"""Select the checkpoint of one seed from which RL starts, on dev completions alone."""

from glint.config.selection import SelectJob
from glint.files import read_parquet, write_json
from glint.selection import select
from pipeline.job import arguments, job


def main() -> None:
    """Read `completions` (Parquet), write the choice and its reasons to `out` (JSON)."""
    given = arguments(__doc__, "completions out recipe")
    with job(given, given.recipe):
        asked = SelectJob.model_validate_json(given.job)
        write_json(given.out, select(asked, read_parquet(given.completions)))


if __name__ == "__main__":
    main()
