"""Residual streams without a stream tensor.

The embedding e is copied into S streams; layer l reads sum_s softmax(a_l)_s stream_s and adds softmax(b_l)_s t_l to stream s.
Since every softmax sums to one, what layer l reads is e + sum_{j<l} c_lj t_j with c_lj = sum_s softmax(a_l)_s softmax(b_j)_s,
and the mean over the streams at the end is e + sum_j t_j / S. So only e and the block outputs t are kept.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from glint.config.model import ModelRecipe
from glint.model.mechanism import Parameters


def mixing_weights(read_logits: Sequence[Tensor], write_logits: Sequence[Tensor]) -> list[Tensor]:
    """Return for each level l its weights [l+1] of (e, t_0, ..., t_{l-1}); the last level is the mean over the streams.

    Each level has a tensor of its own, so that levels whose logits are frozen ask for no gradient.
    """
    shares = [torch.softmax(logits_S, -1) for logits_S in write_logits]
    rows = []
    for level, logits_S in enumerate(read_logits):
        written = torch.stack([torch.ones_like(logits_S), *shares[:level]])
        rows.append(written @ torch.softmax(logits_S, -1))
    streams = len(read_logits[0])
    rows.append(torch.stack([torch.ones_like(shares[0]), *shares]) @ shares[0].new_full((streams,), 1 / streams))
    return rows


class StreamBank:
    """Block outputs of one forward pass, [L+1, N, D], and, in the backward pass, the gradients of what was read."""

    def __init__(self, embedded_ND: Tensor, layers: int) -> None:
        self.values = embedded_ND.new_empty(layers + 1, *embedded_ND.shape)
        self.weights = embedded_ND.new_zeros(layers + 1, layers + 1)
        self.grads: Tensor | None = None


class _Read(torch.autograd.Function):
    """Read layer `level`'s input. Every later read depends on this one, so their gradients are in the bank when ours is asked for."""

    @staticmethod
    def forward(ctx: Any, newest_ND: Tensor, weights: Tensor, bank: StreamBank, level: int) -> Tensor:
        ctx.bank, ctx.level = bank, level
        bank.values[level] = newest_ND
        bank.weights[level, : level + 1] = weights
        return _combine(weights, bank.values[: level + 1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        bank, level = ctx.bank, ctx.level
        if bank.grads is None:
            bank.grads = torch.empty_like(bank.values)
        bank.grads[level] = grad_ND
        grad_newest = _combine(bank.weights[level:, level], bank.grads[level:]) if ctx.needs_input_grad[0] else None
        grad_weights = bank.values[: level + 1].flatten(1) @ grad_ND.flatten() if ctx.needs_input_grad[1] else None
        return grad_newest, grad_weights, None, None


def _combine(weights: Tensor, values: Tensor) -> Tensor:
    return (weights @ values.flatten(1)).view(values.shape[1:])


def read(newest_ND: Tensor, weights: list[Tensor], bank: StreamBank, level: int) -> Tensor:
    """Store `newest_ND` (the embedding at level 0, else t_{level-1}) in the bank and return what `level` reads.

    Levels must be read once each, in ascending order, and every read must depend on the read before it.
    """
    return _Read.apply(newest_ND, weights[level], bank, level)


class MixedStreams:
    """S streams that layers read and write with learned weights."""

    def __init__(self, recipe: ModelRecipe) -> None:
        self.recipe = recipe

    def parameters(self) -> Parameters:
        """Return the logits of a block's reading and writing weights, [S] each."""
        streams = self.recipe.streams
        return {
            "read_logits": nn.Parameter(torch.linspace(0.1, -0.1, streams)),
            "write_logits": nn.Parameter(torch.linspace(-0.1, 0.1, streams)),
        }

    def mixing(self, blocks: Sequence[nn.Module]) -> list[Tensor]:
        """Return the weights of each level."""
        read_logits, write_logits = ([block.get_parameter(name) for block in blocks] for name in ("read_logits", "write_logits"))
        return mixing_weights(read_logits, write_logits)

    def begin(self, embedded_ND: Tensor, mixing: list[Tensor]) -> "MixedPass":
        """Begin a pass with the embedded tokens."""
        return MixedPass(embedded_ND, mixing)


class MixedPass:
    """One pass through the layers; a layer's output holds what it has read."""

    def __init__(self, embedded_ND: Tensor, mixing: list[Tensor]) -> None:
        self.newest_ND, self.read_ND, self.mixing = embedded_ND, embedded_ND, mixing
        self.bank = StreamBank(embedded_ND, len(mixing) - 1)

    def before_attention(self, layer: int) -> Tensor:
        """Return what `layer` reads [N, D]."""
        self.read_ND = read(self.newest_ND, self.mixing, self.bank, layer)
        return self.read_ND

    def after_attention(self, layer: int, change_ND: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Return what the layer has read, with the attention's change [N, D]; the feed-forward adds to it."""
        total_ND = self.read_ND + change_ND
        return total_ND, total_ND

    def after_feed_forward(self, layer: int, total_ND: Tensor) -> None:  # noqa: ARG002
        """Write the layer's output."""
        self.newest_ND = total_ND

    def end(self) -> Tensor:
        """Return the mean over the streams [N, D]."""
        return read(self.newest_ND, self.mixing, self.bank, len(self.mixing) - 1)


class SingleStream:
    """The usual residual stream: nothing to learn."""

    def __init__(self, recipe: ModelRecipe) -> None:
        """All residuals are made alike; this one has no sizes."""

    def parameters(self) -> Parameters:
        """Return nothing."""
        return {}

    def mixing(self, blocks: Sequence[nn.Module]) -> list[Tensor]:  # noqa: ARG002
        """Return nothing."""
        return []

    def begin(self, embedded_ND: Tensor, mixing: list[Tensor]) -> "SinglePass":  # noqa: ARG002
        """Begin a pass with the embedded tokens."""
        return SinglePass(embedded_ND)


class SinglePass:
    """One pass through the layers, each of which adds to what it reads."""

    def __init__(self, embedded_ND: Tensor) -> None:
        self.x_ND = embedded_ND

    def before_attention(self, layer: int) -> Tensor:  # noqa: ARG002
        """Return the stream [N, D]."""
        return self.x_ND

    def after_attention(self, layer: int, change_ND: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Return the stream with the attention's change [N, D]; the feed-forward adds to it."""
        total_ND = self.x_ND + change_ND
        return total_ND, total_ND

    def after_feed_forward(self, layer: int, total_ND: Tensor) -> None:  # noqa: ARG002
        """Take the stream with the layer's change."""
        self.x_ND = total_ND

    def end(self) -> Tensor:
        """Return the stream [N, D]."""
        return self.x_ND
