"""Turn the results of every run of the config into tables."""

from glint.analysis import analyse
from glint.config.tree import Config
from glint.files import write_json
from pipeline.job import arguments, job
from pipeline.plan import Plan


def main() -> None:
    """Write where every result lies to `manifest` (JSON), and the tables to the folder `out`."""
    given = arguments(__doc__, "manifest out")
    with job(given):
        config = Config.model_validate_json(given.job)
        write_json(given.manifest, Plan(config).manifest())
        analyse(config, given.manifest, given.out)


if __name__ == "__main__":
    main()
