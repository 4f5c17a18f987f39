"""The vision recipe: how a language model learns to read digits in images, and by which path the image reaches it."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from glint.config.base import Decay, Natural, Positive, Rate, Seed, Slice, Strict, Weight
from glint.config.checkpoints import check_checkpoints
from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe

if TYPE_CHECKING:
    from glint.config.tree import Recipe

SIDE = 32
"""Pixels of an image's edge."""
IMAGE_TOKENS = 16
"""Tokens that an image takes in the language model, on either path."""
CONTROL_TOKENS = 3
"""The beginning of the sequence, and the boundaries of the image, which the direct path does without."""

SHARED = (
    *("start", "prompt", "digit_height", "digit_width", "stroke", "shift", "noise"),
    *("steps", "batch", "held_out", "checkpoints", "evaluation_seed"),
)
"""Keys that decide the budget, the images and the scoring; arms that are compared have them in common."""


class VisionRecipe(Strict):
    """Reading the digit in an image; the defaults are the published mini study."""

    path: Literal["faithful", "direct_patch"] = "faithful"
    """faithful: small patches, a vision encoder, a merge of neighbours, a gated projector; direct_patch: large patches, one linear map."""
    start: Literal["random", "selected"] = "random"
    """random: every weight is new, and all are trained; selected: the language model is the checkpoint that the selection rule chooses, of
    which the last block, the final norm and the tied matrix are trained."""
    prompt: str = Field(default="Digit shown: ", min_length=1, max_length=64)
    """Text behind the image; the next byte is the answer."""
    width: Positive = 24
    """Faithful path: width of a patch's vector."""
    heads: Positive = 4
    """Faithful path: attention heads of a vision block."""
    layers: Positive = 2
    """Faithful path: vision blocks."""
    mlp_hidden: Positive = 48
    """Faithful path: hidden width of a vision block's gated MLP."""
    projector_hidden: Positive = 64
    """Faithful path: hidden width of the projector's gated MLP."""
    digit_height: Positive = 20
    """Pixels from the top to the bottom of a digit."""
    digit_width: Positive = 12
    """Pixels from the left to the right of a digit."""
    stroke: Positive = 3
    """Pixels across a segment."""
    shift: Natural = 2
    """Pixels by which a digit may stand off the centre, in either direction."""
    noise: Weight = 0.06
    """Standard deviation of the noise on every channel of every pixel, of which 1 is the brightest."""
    steps: Positive = 120
    """Optimiser steps."""
    batch: Positive = 40
    """Images a step, each seen once."""
    lr: Rate = 2.0e-3
    """Learning rate."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """AdamW's decay rates."""
    weight_decay: Weight = 0.01
    """AdamW's decay, on every trained parameter."""
    clip: Rate = 1.0
    """Largest gradient norm."""
    held_out: int = Field(default=200, ge=10, le=10_000)
    """Images on which a checkpoint is scored, each digit equally often to within one."""
    checkpoints: tuple[Natural, ...] = Field(default=(0, 20, 40, 60, 80, 100, 120), min_length=2)
    """Steps at which the model is scored: before the first, after the last, and between."""
    evaluation_seed: Seed = 20263
    """Seed of the held-out images: all training seeds meet the same ones."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be divisible by the heads, {self.heads}")
        widest = max(self.digit_height, self.digit_width) + 2 * self.shift
        if widest > SIDE:
            raise ValueError(f"digit_height or digit_width, with shift {self.shift} on both sides, takes {widest} of {SIDE} pixels")
        if self.digit_height < 3 * self.stroke + 2 or self.digit_width <= 2 * self.stroke:  # a gap above and below the segment across
            raise ValueError(f"stroke {self.stroke} closes a digit of {self.digit_height} x {self.digit_width} pixels")
        return self

    @model_validator(mode="after")
    def _checkpoints_fit(self) -> Self:
        check_checkpoints(self.checkpoints, self.steps)
        return self

    @property
    def length(self) -> int:
        """Tokens of the longest sequence that the language model reads."""
        return CONTROL_TOKENS + IMAGE_TOKENS + len(self.prompt.encode())


class VisionJob(Slice):
    """Train one seed to read digits in images, and score it at every checkpoint."""

    model: ModelRecipe
    vision: VisionRecipe
    execution: ExecutionRecipe

    @classmethod
    def of(cls, recipe: "Recipe", seed: int) -> Self:
        """Return the job of `seed`."""
        return cls(model=recipe.model, vision=recipe.vision, execution=recipe.execution, seed=seed)
