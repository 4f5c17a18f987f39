"""The expressions recipe: which three-step structures a mini model learns, in which order, and when it is scored."""

from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from glint.config.base import Positive, Seed, Slice, Strict
from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe
from glint.config.pretraining import PretrainingRecipe

if TYPE_CHECKING:
    from glint.config.tree import Recipe

ALL_STRUCTURES = 120
"""Ordered triples of five operations, of which at least two differ."""

SCORING = ("held_out", "evaluation_examples", "cases_per_task", "checkpoints", "generation_steps", "max_new_tokens", "evaluation_seed")
"""Keys of the recipe that decide how a model is scored; arms that are compared have them in common."""


class ExpressionsRecipe(Strict):
    """Examples that state three steps in words and ask for the Python expression; the defaults are the published design."""

    held_out: int = Field(default=32, gt=0, lt=ALL_STRUCTURES)
    """Structures of the 120 that no arm trains on."""
    structures: Positive = 88
    """Structures trained on: the first of those that are not held out."""
    order: Literal["interleaved", "blocked", "curriculum"] = "interleaved"
    """interleaved: rounds through all structures; blocked: the same examples, sorted by structure; curriculum: few first, then all."""
    curriculum_structures: Positive = 8
    """Curriculum: structures of the first part."""
    curriculum_steps: Positive = 100
    """Curriculum: optimiser steps of the first part."""
    examples: int = Field(default=4800, gt=0, le=400_000)
    """Training examples (batch x steps)."""
    evaluation_examples: int = Field(default=2, gt=0, le=100)
    """Examples a structure, held out or not, on which a checkpoint is scored."""
    cases_per_task: Positive = 6
    """Inputs on which a written expression is run."""
    checkpoints: tuple[Positive, ...] = Field(default=(20, 40, 50, 60, 80, 100, 120, 140, 160, 180, 200), min_length=1)
    """Steps at which the model is scored with the target given (teacher forcing)."""
    generation_steps: tuple[Positive, ...] = Field(default=(200,), min_length=1)
    """Checkpoints at which it also writes whole expressions, greedily, which are run."""
    max_new_tokens: Positive = 24
    """Longest written expression, its newline included; the longest target has 19 bytes."""
    evaluation_seed: Seed = 20262
    """Seed of the split into trained and held-out structures and of the scored examples: all training seeds meet the same ones."""

    @model_validator(mode="after")
    def _structures_suffice(self) -> Self:
        trainable = ALL_STRUCTURES - self.held_out
        if self.structures > trainable:
            raise ValueError(f"structures {self.structures} exceeds the {trainable} that are left when {self.held_out} are held out")
        if self.order == "curriculum" and self.curriculum_structures >= self.structures:
            raise ValueError(f"curriculum_structures {self.curriculum_structures} must be fewer than structures {self.structures}")
        return self

    @model_validator(mode="after")
    def _checkpoints_fit(self) -> Self:
        if any(later <= earlier for earlier, later in pairwise(self.checkpoints)):
            raise ValueError(f"checkpoints {list(self.checkpoints)} must ascend")
        strange = [step for step in self.generation_steps if step not in self.checkpoints]
        if strange:
            raise ValueError(f"generation_steps {strange} are no checkpoints; checkpoints: {', '.join(map(str, self.checkpoints))}")
        return self


class ExpressionsJob(Slice):
    """Draw the examples of one seed, train a model on them from random weights, and score it at every checkpoint."""

    model: ModelRecipe
    pretraining: PretrainingRecipe
    expressions: ExpressionsRecipe
    execution: ExecutionRecipe

    @classmethod
    def of(cls, recipe: "Recipe", seed: int) -> Self:
        """Return the job of `seed`; what serves the choice of RL's start takes no part in it."""
        plan = recipe.pretraining
        every = PretrainingRecipe.model_fields["checkpoint_every"].default
        plan = plan.model_copy(update={"first_checkpoint": plan.steps, "checkpoint_every": every, "curve": type(plan.curve)()})
        return cls(model=recipe.model, pretraining=plan, expressions=recipe.expressions, execution=recipe.execution, seed=seed)


def check_training(pretraining: PretrainingRecipe, expressions: ExpressionsRecipe) -> None:
    """Raise ValueError where the training that `pretraining` describes does not fit the examples and checkpoints."""
    batch, steps = pretraining.batch, pretraining.steps
    if batch * steps > expressions.examples:
        raise ValueError(
            f"pretraining.batch {batch} x {steps} steps need {batch * steps} examples, but expressions.examples is {expressions.examples}"
        )
    if expressions.order == "blocked" and batch * steps < expressions.examples:
        raise ValueError(
            f"pretraining.batch {batch} x {steps} steps never meet the last blocks of the {expressions.examples} expressions.examples"
        )
    beyond = [step for step in expressions.checkpoints if step > steps]
    if beyond:
        raise ValueError(f"expressions.checkpoints {beyond} lie beyond the last step, {steps}")
    if expressions.order == "curriculum" and expressions.curriculum_steps >= steps:
        raise ValueError(f"expressions.curriculum_steps {expressions.curriculum_steps} leave none of the {steps} steps for all structures")
