"""The model recipe: sizes of the decoder."""

from typing import Self

from pydantic import Field, model_validator

from glint.config.base import Positive, Rate, Strict, Weight


class ModelRecipe(Strict):
    """Sizes of the `hybrid` decoder; the defaults are the published 25,730,592 parameters."""

    vocabulary: int = Field(default=260, ge=260, le=65536)
    """Token ids: pad 0, bos 1, eos 2, sep 3, then the 256 bytes."""
    width: Positive = 192
    """Width of a token's vector (D)."""
    layers: Positive = 12
    """Number of blocks; every fourth attends sparsely, the others linearly."""
    heads: Positive = 6
    """Attention heads a layer."""
    experts: Positive = 8
    """Routed experts a layer."""
    top_k: Positive = 2
    """Experts a token is sent to."""
    expert_hidden: Positive = 384
    """Hidden width of an expert."""
    shared_experts: Positive = 1
    """Experts that every token passes, unscaled."""
    streams: Positive = 4
    """Parallel residual streams."""
    window: Positive = 32
    """Sparse attention: how many recent positions a token sees, itself included."""
    stride: Positive = 32
    """Sparse attention: every position divisible by this is seen as well."""
    context: Positive = 192
    """Longest sequence, in tokens."""
    rope_base: Rate = 10000.0
    """Base of the rotary position angles."""
    norm_epsilon: Rate = 1e-6
    """Added to the mean square in RMSNorm."""
    init_std: Weight = 0.02
    """Standard deviation of linear and embedding weights at the start."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} must be divisible by twice the heads, 2 * {self.heads}")
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} exceeds the {self.experts} experts")
        if self.window > self.context:
            raise ValueError(f"window {self.window} exceeds the context of {self.context}")
        if self.shared_experts != 1:
            raise ValueError(f"shared_experts must be 1, not {self.shared_experts}")
        return self
