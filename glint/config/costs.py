"""The costs recipe: at which lengths of context a model's time and memory are measured."""

from itertools import pairwise
from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from glint.config.base import Positive, Slice, Strict
from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe

if TYPE_CHECKING:
    from glint.config.tree import Recipe


class CostsRecipe(Strict):
    """What a model of a study of kind architecture costs as its context grows: measured on one CPU thread, with random weights."""

    contexts: tuple[Positive, ...] = Field(default=(128, 512, 1024, 2048, 4096), min_length=2)
    """Tokens that the model has read when it is measured."""
    rows: Positive = 4
    """Rows that decode side by side."""
    steps: Positive = 16
    """Decoding steps timed at each context, of which the median counts."""
    passes: Positive = 3
    """Passes over a whole row timed at each context, forward alone and with the gradient, of which the medians count."""
    products: tuple[Positive, ...] = Field(default=(1024, 2048, 4096), min_length=1)
    """Sizes of the square matrix products whose best rate is the efficiency of 1."""

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if any(later <= earlier for earlier, later in pairwise(self.contexts)):
            raise ValueError(f"contexts {list(self.contexts)} must ascend")
        return self


class CostsJob(Slice):
    """Measure what one model costs."""

    model: ModelRecipe
    costs: CostsRecipe
    execution: ExecutionRecipe
    sequence: Positive
    """Tokens to which the examples of the timed pretraining step are cut."""

    @classmethod
    def of(cls, recipe: "Recipe", seed: int) -> Self:
        """Return the job of `recipe`, on one CPU thread wherever its training runs."""
        execution = ExecutionRecipe(device="cpu", precision=recipe.execution.precision)
        return cls(model=recipe.model, costs=recipe.costs, execution=execution, sequence=recipe.pretraining.sequence, seed=seed)
