"""Write the rollout explorer, one page that needs no network."""

from glint.config.tree import Config
from glint.manifest import Entry, Manifest
from glint.report.explorer import render
from pipeline.job import arguments, job
from pipeline.plan import Plan


def main() -> None:
    """Read what the models of all RL runs wrote, and write `out` (HTML)."""
    given = arguments(__doc__, "out")
    with job(given):
        config = Config.model_validate_json(given.job)
        render(config, Manifest([Entry(**entry) for entry in Plan(config).manifest()]), given.out)


if __name__ == "__main__":
    main()
