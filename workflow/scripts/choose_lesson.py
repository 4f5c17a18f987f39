"""Choose what the slides teach with."""

from glint.analysis.lesson import analyse
from glint.config.tree import Config
from glint.manifest import Entry, Manifest
from pipeline.job import arguments, job
from pipeline.plan import Plan


def main() -> None:
    """Write the chosen task, group and text to `out` (JSON)."""
    given = arguments(__doc__, "out")
    with job(given):
        config = Config.model_validate_json(given.job)
        analyse(config, Manifest([Entry(**entry) for entry in Plan(config).manifest()]), given.out)


if __name__ == "__main__":
    main()
