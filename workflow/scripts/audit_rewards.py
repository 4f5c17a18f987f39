"""Ask whether the rewards of every run were earned."""

from glint.audit import audit
from glint.config.tree import Config
from glint.manifest import Entry, Manifest
from glint.verify.pool import VerifierError
from pipeline.job import arguments, job
from pipeline.plan import Plan


def main() -> None:
    """Write the counts of rewarded, doubtful and suspicious programs to `out` (CSV)."""
    given = arguments(__doc__, "out")
    with job(given, None, VerifierError):
        config = Config.model_validate_json(given.job)
        audit(config, Manifest([Entry(**entry) for entry in Plan(config).manifest()]), given.out)


if __name__ == "__main__":
    main()
