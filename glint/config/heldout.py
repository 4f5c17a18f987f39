"""The slice of a job that measures the loss of checkpoints on examples that no model has trained on."""

from glint.config.base import Positive, Slice
from glint.config.execution import ExecutionRecipe

ALL = "all"
"""The source under which all examples stand together."""


class HeldOutJob(Slice):
    """Measure the cross-entropy of pretraining checkpoints on the examples of one split."""

    execution: ExecutionRecipe
    split: str
    sequence: Positive
    """Tokens an example is cut to, as in pretraining."""
    checkpoints: tuple[str, ...]
    """Names of the checkpoints."""
