"""The evaluation recipe: how a checkpoint is asked, on which tasks, and when a completion ends."""

from typing import Literal, Self

from pydantic import Field, model_validator

from glint.config.base import Positive, Rate, Slice, Strict
from glint.config.execution import ExecutionRecipe


class EvaluationRecipe(Strict):
    """Greedy pass@1 and sampled pass@k."""

    samples: Positive = 8
    """Sampled completions a task (n)."""
    k: tuple[Positive, ...] = Field(default=(1, 8), min_length=1)
    """The k of pass@k; each at most n."""
    temperature: Rate = 0.35
    """Sampling temperature."""
    max_new_tokens: Positive = 48
    """Longest completion."""
    stops: tuple[Literal["parses", "eos"], ...] = Field(default=("parses", "eos"), min_length=1)
    """Stop rules reported side by side; the first is the headline."""
    property_inputs: int = Field(default=128, ge=100)
    """Inputs of the property suite, the second judge."""

    @model_validator(mode="after")
    def _k_within_n(self) -> Self:
        for name, given in (("k", self.k), ("stops", self.stops)):
            if len(set(given)) < len(given):
                raise ValueError(f"{name} names a value twice: {list(given)}")
        if max(self.k) > self.samples:
            raise ValueError(f"k {max(self.k)} exceeds the {self.samples} samples a task (pass@k needs n >= k)")
        return self


class EvaluateJob(Slice):
    """Ask checkpoints for completions of the tasks of one split, and judge them."""

    evaluation: EvaluationRecipe
    execution: ExecutionRecipe
    split: str
    sampled: bool
    """Whether sampled completions are drawn beside the greedy one."""
    families: tuple[str, ...] = ()
    """Families asked; empty: all of the corpus."""
    tasks_per_family: Positive | None = None
    """Tasks of the split a family, the first ones; none: all."""
    checkpoints: tuple[str, ...] = ()
    """Names of the checkpoints asked; empty: the selected start alone."""
