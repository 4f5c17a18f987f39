"""The recall recipe: how a model learns to recall names, and how many bytes later it is asked for them."""

from itertools import pairwise
from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from glint.config.base import Decay, Natural, Positive, Rate, Seed, Slice, Strict, Weight
from glint.config.checkpoints import check_checkpoints
from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe

if TYPE_CHECKING:
    from glint.config.tree import Recipe

INITIALS = 26
"""Letters of the alphabet. The names of a text differ in the first letter, by which they are asked."""
ROOM = 3
"""A training text of n bytes states at most one name for every `ROOM` times the bytes of a name."""


class StageRecipe(Strict):
    """A part of the training: so many steps on texts of one length."""

    length: int = Field(gt=0, le=100_000)
    """Bytes of a text."""
    batch: Positive
    """Texts a step, each seen once."""
    steps: Positive
    """Optimiser steps."""


class RecallRecipe(Strict):
    """Texts that state names among other words and ask for each of them, by its initial, a given number of bytes later."""

    distances: tuple[Positive, ...] = Field(default=(16, 32, 64, 128, 256, 512), min_length=1)
    """Bytes from a name's letters in the statement to the same letters in the answer, in the texts on which checkpoints are scored."""
    questions: Positive = 24
    """Names asked in a scored text, at every distance equally many; in a training text at most so many, at any distance."""
    unasked: Natural = 0
    """Names stated in a scored text and never asked; in a training text at most so many."""
    letters: int = Field(default=2, gt=0, le=8)
    """Letters of a name behind its initial, each drawn from all 26: the answer."""
    nearest: Positive = 4
    """Shortest distance in a training text; there they are drawn log-uniformly, up to the longest of `distances` that the text can hold."""
    stages: tuple[StageRecipe, ...] = Field(
        default=(
            StageRecipe(length=64, batch=16, steps=900),
            StageRecipe(length=160, batch=12, steps=150),
            StageRecipe(length=640, batch=8, steps=180),
        ),
        min_length=1,
    )
    """Training, one length after another; scored texts have the last one."""
    lr: Rate = 2.0e-3
    """Learning rate."""
    warmup: Natural = 50
    """Steps over which the learning rate rises to it."""
    betas: tuple[Decay, Decay] = (0.9, 0.99)
    """AdamW's decay rates."""
    weight_decay: Weight = 0.01
    """AdamW's decay, on every parameter."""
    clip: Rate = 1.0
    """Largest gradient norm."""
    answer_weight: Weight = 1.0
    """Weight of the answers' mean loss, beside the mean loss of all bytes at weight 1."""
    held_out: Positive = 40
    """Texts on which a checkpoint is scored."""
    checkpoints: tuple[Natural, ...] = Field(default=(0, 900, 1050, 1230), min_length=2)
    """Steps at which the model is scored: before the first, after the last, and between."""
    evaluation_seed: Seed = 20264
    """Seed of the scored texts: all training seeds and arms meet the same ones."""

    @property
    def span(self) -> int:
        """Bytes of a name with the sign before it: the sign, the initial, the letters."""
        return 2 + self.letters

    @property
    def length(self) -> int:
        """Bytes of a scored text."""
        return self.stages[-1].length

    @property
    def longest(self) -> int:
        """Bytes of the longest text."""
        return max(stage.length for stage in self.stages)

    @property
    def steps(self) -> int:
        """Optimiser steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    def stage(self, step: int) -> StageRecipe:
        """Return the stage of the optimiser step `step` (from 0)."""
        ends = [sum(stage.steps for stage in self.stages[: place + 1]) for place in range(len(self.stages))]
        return next(stage for stage, end in zip(self.stages, ends, strict=True) if step < end)

    def most_names(self, length: int) -> int:
        """Return how many names a training text of `length` bytes states at most."""
        return min(self.questions + self.unasked, length // (ROOM * self.span))

    def farthest(self, length: int) -> int:
        """Return the longest distance in a training text of `length` bytes: around it there is room for two more names."""
        return min(self.distances[-1], length - 4 * self.span)

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if any(later <= earlier for earlier, later in pairwise(self.distances)):
            raise ValueError(f"distances {list(self.distances)} must ascend")
        if self.distances[0] < self.span:
            raise ValueError(f"distances {list(self.distances)} must not be less than the {self.span} bytes that a name takes")
        if self.questions % len(self.distances):
            raise ValueError(f"questions {self.questions} must be divisible by the number of distances, {len(self.distances)}")
        if self.questions + self.unasked > INITIALS:
            raise ValueError(f"questions {self.questions} and unasked {self.unasked} need more than the {INITIALS} initials there are")
        return self

    @model_validator(mode="after")
    def _texts_suffice(self) -> Self:
        written = self.span * (2 * self.questions + self.unasked)
        if 2 * written > self.length:
            raise ValueError(f"stages: names take {written} bytes of a scored text, more than half of its {self.length}")
        early = 4 * self.span * self.questions // len(self.distances)
        if self.length - self.distances[-1] < early:
            raise ValueError(
                f"stages: a scored text of {self.length} bytes is too short for distance {self.distances[-1]}; "
                f"it takes at least {self.distances[-1] + early}"
            )
        for stage in self.stages:
            if self.farthest(stage.length) < self.nearest or self.nearest < self.span:
                raise ValueError(
                    f"nearest {self.nearest} must lie between the {self.span} bytes of a name and the longest distance "
                    f"in a text of {stage.length} bytes, {self.farthest(stage.length)}"
                )
        return self

    @model_validator(mode="after")
    def _checkpoints_fit(self) -> Self:
        check_checkpoints(self.checkpoints, self.steps)
        return self


class RecallJob(Slice):
    """Train one seed to recall names, and score it at every checkpoint."""

    model: ModelRecipe
    recall: RecallRecipe
    execution: ExecutionRecipe

    @classmethod
    def of(cls, recipe: "Recipe", seed: int) -> Self:
        """Return the job of `seed`."""
        return cls(model=recipe.model, recall=recipe.recall, execution=recipe.execution, seed=seed)
