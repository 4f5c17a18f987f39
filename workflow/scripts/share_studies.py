"""Draw the picture and write the summary of every study for those who post it."""

from glint.config.share import ShareJob
from glint.report.share import share
from pipeline.job import arguments, job


def main() -> None:
    """Read the folder `tables` and `claims` (CSV), write the pictures and summaries to the folder `out`."""
    given = arguments(__doc__, "tables claims out")
    with job(given):
        share(ShareJob.model_validate_json(given.job), given.tables, given.claims, given.out)


if __name__ == "__main__":
    main()
