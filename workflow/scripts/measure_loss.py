"""Measure the loss of pretraining checkpoints on examples that no model has trained on."""

from glint.config.heldout import HeldOutJob
from glint.files import write_json
from glint.heldout import measure
from pipeline.job import arguments, job


def main() -> None:
    """Measure the checkpoints that the job names, in `pretrained`, on `examples` (Parquet); write `out` (Parquet), `receipt` (JSON)."""
    given = arguments(__doc__, "examples pretrained out receipt recipe")
    with job(given, given.recipe):
        asked = HeldOutJob.model_validate_json(given.job)
        write_json(given.receipt, measure(asked, given.pretrained, given.examples, given.out))


if __name__ == "__main__":
    main()
