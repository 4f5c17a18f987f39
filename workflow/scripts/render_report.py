"""Write the report, one page that needs no network."""

from glint.config.tree import Config
from glint.report.page import render
from pipeline.job import arguments, job


def main() -> None:
    """Read the folder `tables`, `claims` (CSV) and the folder `figures`, write `out` (HTML)."""
    given = arguments(__doc__, "tables claims figures out")
    with job(given):
        render(Config.model_validate_json(given.job), given.tables, given.claims, given.figures, given.out)


if __name__ == "__main__":
    main()
