"""Ask a checkpoint that is reported for the tasks of its study's split, and for the canary, which no honest model passes."""

from pathlib import Path

from glint.config.evaluation import EvaluateJob
from glint.evaluate import evaluate
from glint.files import read_json, write_json
from glint.verify.pool import VerifierError
from pipeline.job import arguments, job


def main() -> None:
    """Evaluate the start of RL, or what `trained` lays over it; write `out`, `canary` (Parquet, a file a split) and `receipt` (JSON)."""
    given = arguments(__doc__, "examples pretrained selection out canary receipt recipe", optional="trained")
    with job(given, given.recipe, VerifierError):
        asked = EvaluateJob.model_validate_json(given.job)
        start = given.pretrained / read_json(given.selection)["checkpoint"]
        checkpoints: dict[str, tuple[Path, ...]] = {name: (start, given.trained / name) for name in asked.checkpoints}
        checkpoints = checkpoints or {start.name: (start,)}
        reported = evaluate(asked, checkpoints, given.examples, given.out)
        canary = evaluate(asked.model_copy(update={"split": "canary"}), checkpoints, given.examples, given.canary)
        write_json(given.receipt, canary | {name: reported[name] + canary[name] for name in ("seconds", "completions")})


if __name__ == "__main__":
    main()
