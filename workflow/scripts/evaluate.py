"""Ask checkpoints of one training for completions, and judge them."""

from collections.abc import Sequence
from pathlib import Path

from glint.config.evaluation import EvaluateJob
from glint.evaluate import evaluate
from glint.files import read_json, write_json
from glint.verify.pool import VerifierError
from pipeline.job import arguments, job


def layers(names: Sequence[str], pretrained: Path, selection: Path | None, trained: Path | None) -> dict[str, tuple[Path, ...]]:
    """Return the folders that make up each checkpoint: the pretrained one, and over it what RL has trained.

    Without `selection` the names are pretraining steps; with it, RL's group counts, of which `groups-000` is the start itself, and no
    name at all asks for the start under its own name.
    """
    if selection is None:
        return {name: (pretrained / name,) for name in names}
    start = pretrained / read_json(selection)["checkpoint"]
    if trained is None:
        return {start.name: (start,)}
    return {name: (start,) if name == "groups-000" else (start, trained / name) for name in names}


def main() -> None:
    """Evaluate the checkpoints that the job names on `examples` (Parquet), write `out` (Parquet) and `receipt` (JSON)."""
    given = arguments(__doc__, "examples pretrained out receipt recipe", optional="selection trained")
    with job(given, given.recipe, VerifierError):
        asked = EvaluateJob.model_validate_json(given.job)
        checkpoints = layers(asked.checkpoints, given.pretrained, given.selection, given.trained)
        write_json(given.receipt, evaluate(asked, checkpoints, given.examples, given.out))


if __name__ == "__main__":
    main()
