"""Trace one RL run: what the policies before and after it make of the same texts."""

from glint.config.trace import TraceJob
from glint.files import read_json, write_json
from glint.trace import trace
from glint.verify.pool import VerifierError
from pipeline.job import arguments, job


def main() -> None:
    """Read the start of RL and what `trained` lays over it, and their answers `before` and `after` (Parquet); write to the folder `out`."""
    given = arguments(__doc__, "examples pretrained selection trained before after out receipt recipe")
    with job(given, given.recipe, VerifierError):
        asked = TraceJob.model_validate_json(given.job)
        start = given.pretrained / read_json(given.selection)["checkpoint"]
        policies = {"before": (start,), "after": (start, given.trained / asked.checkpoint)}
        write_json(given.receipt, trace(asked, policies, {"before": given.before, "after": given.after}, given.examples, given.out))


if __name__ == "__main__":
    main()
