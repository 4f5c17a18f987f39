"""Set the run's estimates beside the published claims."""

from glint.config.tree import Config
from glint.replication import compare
from pipeline.job import arguments, job


def main() -> None:
    """Read the folder `tables` and the file `claims` (YAML; none: nothing is claimed), write `out` (CSV)."""
    given = arguments(__doc__, "tables out", optional="claims")
    with job(given):
        compare(Config.model_validate_json(given.job), given.claims, given.tables, given.out)


if __name__ == "__main__":
    main()
