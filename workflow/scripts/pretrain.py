"""Pretrain one seed from random weights, resuming from its last saved state."""

import shutil

from glint.config.pretraining import PretrainJob
from glint.train.pretrain import pretrain
from pipeline.job import arguments, job
from pipeline.publish import publish


def main() -> None:
    """Train on `tokens` in the private folder `state`, then hand the checkpoints over to `out`."""
    given = arguments(__doc__, "tokens out recipe state")
    with job(given, given.recipe):
        asked = PretrainJob.model_validate_json(given.job)
        pretrain(asked, given.tokens, given.state / "out", given.state / "state")
        publish(given.state / "out", given.out)
        shutil.rmtree(given.state)


if __name__ == "__main__":
    main()
