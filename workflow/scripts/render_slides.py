"""Write the slides, one file that needs no network."""

from glint.config.tree import Config
from glint.report.slides import render
from pipeline.job import arguments, job


def main() -> None:
    """Read the folder `tables`, `claims` (CSV), the folders `figures` and `reveal` (of reveal.js), write `out` (HTML)."""
    given = arguments(__doc__, "tables claims figures reveal out")
    with job(given):
        render(Config.model_validate_json(given.job), given.tables, given.claims, given.figures, given.reveal, given.out)


if __name__ == "__main__":
    main()
