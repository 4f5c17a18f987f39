"""The pretraining recipe."""

from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from glint.config.base import Decay, Natural, Positive, Rate, Seed, Slice, Strict, Weight
from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe

if TYPE_CHECKING:
    from glint.config.tree import Recipe


class CurveRecipe(Strict):
    """Seeds that train on past `steps` for the published learning curve."""

    seeds: tuple[Seed, ...] = (42,)
    """Which seeds."""
    steps: Positive = 400
    """Their last step."""
    checkpoints: tuple[Natural, ...] = (0, 100, 200, 400)
    """Steps evaluated for the curve (0: random weights)."""


class PretrainingRecipe(Strict):
    """AdamW at a constant rate on fresh examples."""

    steps: Positive = 160
    """Optimiser steps of a seed that is not in `curve`."""
    batch: Positive = 32
    """Examples a step."""
    sequence: int = Field(default=128, ge=2, le=10**9)
    """Tokens an example is cut to."""
    lr: Rate = 3.0e-4
    """Learning rate."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """AdamW's decay rates."""
    weight_decay: Weight = 0.1
    """AdamW's decay, on every parameter."""
    clip: Rate = 1.0
    """Largest gradient norm."""
    balance_weight: Weight = 0.01
    """Weight of the router's balance loss."""
    dense_steps: Natural = 20
    """First steps, in which indexed attention sees all positions while its indexer learns by a loss of its own; then those it chooses."""
    first_checkpoint: Positive = 60
    """First step that is kept as a candidate start of RL."""
    checkpoint_every: Positive = 20
    """Steps between candidates."""
    curve: CurveRecipe = Field(default_factory=CurveRecipe)
    """The longer run behind the published curve."""

    def last_step(self, seed: int) -> int:
        """Return the number of steps that `seed` trains for."""
        return max(self.steps, self.curve.steps) if seed in self.curve.seeds else self.steps

    def candidates(self) -> tuple[int, ...]:
        """Return the steps among which selection chooses, the same for every seed."""
        return tuple(range(self.first_checkpoint, self.steps + 1, self.checkpoint_every))

    def checkpoints(self, seed: int) -> tuple[int, ...]:
        """Return every step at which the run of `seed` writes a checkpoint, ascending."""
        extra = self.curve.checkpoints if seed in self.curve.seeds else ()
        return tuple(sorted({*self.candidates(), *extra}))

    @model_validator(mode="after")
    def _steps_fit(self) -> Self:
        if self.first_checkpoint > self.steps:
            raise ValueError(f"first_checkpoint {self.first_checkpoint} lies beyond the last step, {self.steps}")
        beyond = [step for step in self.curve.checkpoints if step > max(self.curve.steps, self.steps)]
        if beyond:
            raise ValueError(f"curve.checkpoints {beyond} lie beyond the last step, {max(self.curve.steps, self.steps)}")
        return self


class PretrainJob(Slice):
    """Train one seed from random weights to `steps`, keeping `checkpoints`."""

    model: ModelRecipe
    pretraining: PretrainingRecipe
    execution: ExecutionRecipe
    steps: Positive
    checkpoints: tuple[Natural, ...]

    @classmethod
    def of(cls, recipe: "Recipe", seed: int, also: tuple[int, ...] = ()) -> Self:
        """Return the job of `seed`; the curve's settings enter only through `steps` and `checkpoints`, of which `also` are further ones."""
        plan = recipe.pretraining
        return cls(
            model=recipe.model,
            pretraining=plan.model_copy(update={"curve": type(plan.curve)()}),
            execution=recipe.execution,
            seed=seed,
            steps=plan.last_step(seed),
            checkpoints=tuple(sorted({*plan.checkpoints(seed), *also})),
        )
