"""Turn the results of the recall studies into tables."""

from glint.analysis.recall import analyse
from glint.config.tree import Config
from glint.manifest import Entry, Manifest
from pipeline.job import arguments, job
from pipeline.plan import Plan


def main() -> None:
    """Write the tables of the recall studies to the folder `out`."""
    given = arguments(__doc__, "out")
    with job(given):
        config = Config.model_validate_json(given.job)
        analyse(config, Manifest([Entry(**entry) for entry in Plan(config).manifest()]), given.out)


if __name__ == "__main__":
    main()
