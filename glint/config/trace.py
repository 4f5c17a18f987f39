"""The slice of a job that traces one RL run: what the policies before and after it make of the same texts."""

from glint.config.base import Positive, Seed, Slice
from glint.config.evaluation import EvaluationRecipe
from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe


class TraceJob(Slice):
    """Trace the shown task of every family: next-byte probabilities, routing, and what random weights write."""

    model: ModelRecipe
    evaluation: EvaluationRecipe
    execution: ExecutionRecipe
    split: str
    """Split of the tasks on which the run is reported."""
    tasks_per_family: Positive | None = None
    """Tasks of the split a family that were asked, the first ones; none: all."""
    checkpoint: str
    """Name of the last RL checkpoint."""
    start_seed: Seed | None = None
    """Seed of the pretraining behind the run; none: the run's own."""
