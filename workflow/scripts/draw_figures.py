"""Draw every figure of the report."""

from glint.report.figures import draw
from pipeline.job import arguments, job


def main() -> None:
    """Read the folder `tables` and `claims` (CSV), write the figures to the folder `out` (SVG)."""
    given = arguments(__doc__, "tables claims out")
    with job(given):
        draw(given.tables, given.claims, given.out)


if __name__ == "__main__":
    main()
