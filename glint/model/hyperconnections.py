"""Manifold-constrained hyper-connections (Xie et al., 2026): residual streams that every layer reads, mixes and writes by the token.

The embedding is copied into S streams X_i. A layer F reads x = sum_i pre_i X_i and leaves X'_j = post_j F(norm(x)) + sum_i comb_ij X_i,
where pre, post and comb come from the token's own streams. The rows and columns of comb sum to 1, so that mixing neither grows nor
shrinks what the streams carry. Tokens do not see each other here: a decode step is the same call, and there is nothing to cache.
All of it is float32.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glint.config.model import ModelRecipe
from glint.device import compiles
from glint.model import compiled
from glint.model.mechanism import Parameters

SINKHORN_ITERATIONS = 20
FLOOR = 1e-6
PARTS = ("attention", "ffn")
TENSORS = ("mix", "mix_base", "mix_scale")
INIT_SCALE = 0.01
INIT_DIAGONAL = 4.0


def sinkhorn(logits_NSS: Tensor) -> Tensor:
    """Return positive matrices [N, S, S] whose columns sum to 1, and whose rows do as far as 20 iterations bring them.

    Softmax over each row, then columns, then 19 times rows and columns are divided by their sums (Sinkhorn and Knopp, 1967); logits of a
    few units end within 1e-5. Tokens are moved to the last axis, where a sum over four entries is a sum of four long vectors.
    """
    comb_SSN = torch.softmax(logits_NSS.permute(1, 2, 0).contiguous(), 1) + FLOOR
    comb_SSN = comb_SSN / (comb_SSN.sum(0, keepdim=True) + FLOOR)
    for _ in range(SINKHORN_ITERATIONS - 1):
        comb_SSN = comb_SSN / (comb_SSN.sum(1, keepdim=True) + FLOOR)
        comb_SSN = comb_SSN / (comb_SSN.sum(0, keepdim=True) + FLOOR)
    return comb_SSN.permute(2, 0, 1)


@dataclass(frozen=True)
class Mixing:
    """How one layer's output joins the streams, a token."""

    post_NS: Tensor
    comb_NSS: Tensor
    """Weight of stream i (rows) in the new stream j (columns)."""

    def write(self, streams_NSD: Tensor, y_ND: Tensor) -> Tensor:
        """Return the new streams post_j y + sum_i comb_ij X_i, [N, S, D]."""
        weights = torch.cat([self.comb_NSS, self.post_NS[:, None]], 1)
        return weights.transpose(1, 2) @ torch.cat([streams_NSD, y_ND.float()[:, None]], 1)

    def mean(self, streams_NSD: Tensor, y_ND: Tensor) -> Tensor:
        """Return the mean of the new streams, [N, D], without writing them."""
        return self.post_NS.mean(1, keepdim=True) * y_ND.float() + (self.comb_NSS.mean(2)[:, None] @ streams_NSD).squeeze(1)


class Connection:
    """The read and write of one attention or one feed-forward, from its projection [S (2 + S), S D], base and scale."""

    def __init__(self, projection: Tensor, base: Tensor, scale: Tensor) -> None:
        self.tensors = self.projection, self.base, self.scale = projection, base, scale
        self.streams = math.isqrt(len(base) + 1) - 1

    def read(self, streams_NSD: Tensor, norm_epsilon: float) -> tuple[Tensor, Mixing]:
        """Return what attention or feed-forward reads, [N, D], before its norm, and how its output is written."""
        parts = (self.streams, self.streams, self.streams**2)
        flat = streams_NSD.flatten(1)
        scale = torch.rsqrt(torch.linalg.vector_norm(flat, dim=1).square() / flat.shape[1] + norm_epsilon)
        logits = (flat @ self.projection.t()) * scale[:, None]  # scaled after the product, which is linear
        scaled = zip(logits.split(parts, 1), self.scale, self.base.split(parts), strict=True)
        pre, post, comb = (part * weight + base for part, weight, base in scaled)
        x_ND = ((pre.sigmoid() + FLOOR)[:, None] @ streams_NSD).squeeze(1)
        return x_ND, Mixing(2 * post.sigmoid(), sinkhorn(comb.unflatten(1, (self.streams, self.streams))))


class HyperStreams:
    """S streams with a connection before attention and one before the feed-forward of every layer."""

    def __init__(self, recipe: ModelRecipe) -> None:
        self.recipe = recipe

    def parameters(self) -> Parameters:
        """Return projection, base and scale of both connections of a block; rows of a projection: pre, post, then comb row by row.

        Layers start near separate streams: scale 1 and base 0, the library's choice, mix all streams to their mean in the first layer.
        Here a stream keeps 95 % of itself, a layer reads half of the streams' sum, and writes its output to each at weight 1.
        """
        streams, width = self.recipe.streams, self.recipe.width
        parameters: dict[str, Tensor] = {}
        for part in PARTS:
            base = torch.cat([torch.zeros(2 * streams), INIT_DIAGONAL * torch.eye(streams).flatten()])
            own = (torch.empty(streams * (2 + streams), streams * width), base, torch.full((3,), INIT_SCALE))
            parameters |= {f"{part}_{name}": nn.Parameter(tensor) for name, tensor in zip(TENSORS, own, strict=True)}
        return parameters

    def mixing(self, blocks: Sequence[nn.Module]) -> list[Tensor]:
        """Return the tensors of all connections, in the order in which a pass meets them."""
        return [block.get_parameter(f"{part}_{name}") for block in blocks for part in PARTS for name in TENSORS]

    def begin(self, embedded_ND: Tensor, mixing: list[Tensor]) -> "HyperPass":
        """Begin a pass with the embedded tokens."""
        connections = [Connection(*mixing[start : start + len(TENSORS)]) for start in range(0, len(mixing), len(TENSORS))]
        return HyperPass(embedded_ND.float(), connections, self.recipe.norm_epsilon)


class HyperPass:
    """One pass through the layers. What is to be written waits until the next read, so that both are one pass over the streams."""

    def __init__(self, embedded_ND: Tensor, connections: list[Connection], norm_epsilon: float) -> None:
        """Have the embedding written once to each of S new streams, at weight 1, with none before them to mix."""
        tokens, streams = len(embedded_ND), connections[0].streams
        self.streams_NSD = embedded_ND.new_empty(tokens, 0, embedded_ND.shape[1])
        self.mixing = Mixing(embedded_ND.new_ones(tokens, streams), embedded_ND.new_empty(tokens, 0, streams))
        self.change_ND, self.connections, self.norm_epsilon = embedded_ND, connections, norm_epsilon

    def before_attention(self, layer: int) -> Tensor:
        """Return what the attention of `layer` reads [N, D]."""
        return self._write_and_read(self.connections[2 * layer])

    def after_attention(self, layer: int, change_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Write the attention's change; return what the feed-forward reads [N, D], and zeros, since its change is written alone."""
        self.change_ND = change_ND
        x_ND = self._write_and_read(self.connections[2 * layer + 1])
        return x_ND, torch.zeros_like(x_ND)

    def after_feed_forward(self, layer: int, total_ND: Tensor) -> None:  # noqa: ARG002
        """Keep the feed-forward's change, to be written."""
        self.change_ND = total_ND

    def end(self) -> Tensor:
        """Return the mean of the streams [N, D]."""
        return self.mixing.mean(self.streams_NSD, self.change_ND)

    def _write_and_read(self, connection: Connection) -> Tensor:
        if compiles(self.change_ND.device):
            hyper = compiled.Hyper(self.norm_epsilon, SINKHORN_ITERATIONS, FLOOR)
            written = (self.streams_NSD, self.change_ND, self.mixing.post_NS, self.mixing.comb_NSS)
            self.streams_NSD, x_ND, *weights = compiled.hyper_connection(hyper, written, connection.tensors)
            self.mixing = Mixing(*weights)
        else:
            self.streams_NSD = self.mixing.write(self.streams_NSD, self.change_ND)
            x_ND, self.mixing = connection.read(self.streams_NSD, self.norm_epsilon)
        return x_ND
