"""What the decoder asks of a mechanism, and nothing more: a new one is a module with one of these classes and a word in the config.

A mechanism holds the recipe, no tensors. Its parameters lie flat in the block, under the names that it gives them; what it gets back,
`weights`, are the block's parameters by name, those in `matrices` cast to the compute dtype, the others float32.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from glint.model.layout import Rows
from glint.model.rotary import Rotary

Weights = Mapping[str, Tensor]
Parameters = Mapping[str, Tensor]
"""Tensors of a block by name: `nn.Parameter`s, and plain tensors, which are saved like these and have no gradient."""
Starts = Mapping[str, Callable[[Tensor, torch.Generator], object]]
"""Functions that fill a parameter from a generator, by its name."""
NO_STARTS: Starts = {}


class Mechanism(Protocol):
    """What every mechanism gives to its block."""

    @property
    def matrices(self) -> tuple[str, ...]:
        """Names of the parameters that are read in the compute dtype alone."""

    @property
    def starts(self) -> Starts:
        """How those parameters start that are not drawn from N(0, init_std) where they have two axes or more, else as they are given."""

    def parameters(self) -> Parameters:
        """Return the parameters of one block."""

    def decoding(self, weights: Weights) -> Weights:
        """Return `weights` in the form that is fastest for a few rows; made once when decoding begins."""


class Kept(Protocol):
    """What decoding keeps of the tokens that a layer has read, a row each."""

    def select(self, rows: Tensor) -> "Kept":
        """Return what is kept of the rows `rows`, repeated or dropped as the index says."""


class Attention(Mechanism, Protocol):
    """Lets a token see those before it."""

    def forward(self, x_ND: Tensor, weights: Weights, rows: Rows, kept: list[Any] | None) -> Tensor:
        """Return the change [N, D] of packed tokens. Where `kept` is a list, what decoding goes on from is appended to it."""

    def step(self, x_RD: Tensor, weights: Weights, positions_R: Tensor, rotary: Rotary, kept: Any) -> Tensor:
        """Add one position a row to `kept`, in place, and return its change [R, D]."""


class FeedForward(Mechanism, Protocol):
    """Works on each token alone."""

    @property
    def idle_parameters(self) -> int:
        """Parameters of a block that a token does not use."""

    def forward(self, residual_ND: Tensor, x_ND: Tensor, weights: Weights) -> tuple[Tensor, Tensor | None]:
        """Return residual + change [N, D], and where tokens are routed the share of the slots that each expert got [E]."""

    def step(self, residual_RD: Tensor, x_RD: Tensor, weights: Weights) -> Tensor:
        """Return residual + change [R, D] of a few rows."""

    def balance(self, own: Weights, usage_E: Tensor) -> None:
        """Change, after a training step, what balances the experts by a rule; `own` are the block's tensors themselves."""


class Stream(Protocol):
    """One pass through the layers: what each of them reads, float32. The calls come in this order, layer after layer."""

    def before_attention(self, layer: int) -> Tensor:
        """Return what the attention of `layer` reads [N, D]."""

    def after_attention(self, layer: int, change_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Take the attention's change; return what the feed-forward reads, and what it adds its own change to, [N, D] each."""

    def after_feed_forward(self, layer: int, total_ND: Tensor) -> None:
        """Take the feed-forward's sum."""

    def end(self) -> Tensor:
        """Return what the final norm reads [N, D]."""


class Residual(Protocol):
    """Carries what the layers add."""

    def parameters(self) -> Parameters:
        """Return the parameters of one block; those with two axes or more are drawn from N(0, init_std) later."""

    def mixing(self, blocks: Sequence[nn.Module]) -> list[Tensor]:
        """Return what a pass needs beside the tokens, from the parameters of all blocks."""

    def begin(self, embedded_ND: Tensor, mixing: list[Tensor]) -> Stream:
        """Begin a pass with the embedded tokens, float32."""
