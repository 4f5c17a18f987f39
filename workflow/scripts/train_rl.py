"""Teach one seed of one arm by reinforcement learning, resuming from its last saved state."""

import shutil

from glint.config.rl import RLJob
from glint.train.rloo import train
from glint.verify.pool import VerifierError
from pipeline.job import arguments, job
from pipeline.publish import publish


def main() -> None:
    """Train from the selected checkpoint in the private folder `state`, then hand the checkpoints over to `out`."""
    given = arguments(__doc__, "pretrained selection examples tokens out recipe state")
    with job(given, given.recipe, VerifierError):
        asked = RLJob.model_validate_json(given.job)
        train(asked, given.pretrained, given.selection, given.examples, given.tokens, given.state / "out", given.state / "state")
        publish(given.state / "out", given.out)
        shutil.rmtree(given.state)


if __name__ == "__main__":
    main()
