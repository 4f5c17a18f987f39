"""Set the run's estimates beside the published claims."""

from glint.replication import compare
from pipeline.job import arguments, job


def main() -> None:
    """Read the folder `tables` and the file `claims` (YAML; none: nothing is claimed), write `out` (CSV)."""
    given = arguments(__doc__, "tables out", optional="claims")
    with job(given):
        compare(given.claims, given.tables, given.out)


if __name__ == "__main__":
    main()
