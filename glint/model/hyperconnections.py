"""Manifold-constrained hyper-connections (Xie et al., 2026): residual streams that every layer reads, mixes and writes by the token.

The embedding is copied into S streams X_i. A layer F reads x = sum_i pre_i X_i and leaves X'_j = post_j F(norm(x)) + sum_i comb_ij X_i,
where pre, post and comb come from the token's own streams. The rows and columns of comb sum to 1, so that mixing neither grows nor
shrinks what the streams carry. Tokens do not see each other here: a decode step is the same call, and there is nothing to cache.
All of it is float32.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glint.device import compiles
from glint.model import compiled

SINKHORN_ITERATIONS = 20
FLOOR = 1e-6
INIT_STD = 0.02
INIT_SCALE = 0.01
INIT_DIAGONAL = 4.0


def sinkhorn(logits_NSS: Tensor) -> Tensor:
    """Return positive matrices [N, S, S] whose columns sum to 1, and whose rows do as far as 20 iterations bring them.

    Softmax over each row, then columns, then 19 times rows and columns are divided by their sums (Sinkhorn and Knopp, 1967); logits of a
    few units end within 1e-5. On a CPU compiled loops do it; elsewhere tokens are moved to the last axis, where a sum over four entries
    is a sum of four long vectors.
    """
    if compiles(logits_NSS.device):
        return compiled.sinkhorn(logits_NSS, SINKHORN_ITERATIONS, FLOOR)
    comb_SSN = torch.softmax(logits_NSS.permute(1, 2, 0).contiguous(), 1) + FLOOR
    comb_SSN = comb_SSN / (comb_SSN.sum(0, keepdim=True) + FLOOR)
    for _ in range(SINKHORN_ITERATIONS - 1):
        comb_SSN = comb_SSN / (comb_SSN.sum(1, keepdim=True) + FLOOR)
        comb_SSN = comb_SSN / (comb_SSN.sum(0, keepdim=True) + FLOOR)
    return comb_SSN.permute(2, 0, 1)


def spread(embedded_ND: Tensor, streams: int) -> Tensor:
    """Return the streams [N, S, D] before the first layer: copies of the embedding."""
    return embedded_ND.float()[:, None].expand(-1, streams, -1)


def collapse(streams_NSD: Tensor) -> Tensor:
    """Return what the final norm reads [N, D]: the mean of the streams."""
    return streams_NSD.mean(1)


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


class HyperConnection(nn.Module):
    """The read and write of one attention or one feed-forward layer."""

    def __init__(self, width: int, streams: int = 4, norm_epsilon: float = 1e-5) -> None:
        super().__init__()
        self.streams, self.norm_epsilon = streams, norm_epsilon
        self.projection = nn.Parameter(torch.empty(streams * (2 + streams), streams * width))
        """Rows: pre, post, then comb row by row."""
        self.base = nn.Parameter(torch.empty(streams * (2 + streams)))
        self.scale = nn.Parameter(torch.empty(3))
        """Of pre, post and comb."""

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> "HyperConnection":
        """Start near separate streams and return self.

        Scale 1 and base 0, the library's choice, mix all streams to their mean in the first layer. Here a stream keeps 95 % of itself,
        a layer reads half of the streams' sum, and writes its output to each at weight 1.
        """
        self.projection.normal_(0, INIT_STD, generator=generator)
        self.base.zero_()[2 * self.streams :].view(self.streams, -1).fill_diagonal_(INIT_DIAGONAL)
        self.scale.fill_(INIT_SCALE)
        return self

    def forward(self, streams_NSD: Tensor) -> tuple[Tensor, Mixing]:
        """Return what the layer reads, [N, D], before its norm, and how its output is written."""
        count = self.streams
        flat = streams_NSD.flatten(1)
        scale = torch.rsqrt(torch.linalg.vector_norm(flat, dim=1).square() / flat.shape[1] + self.norm_epsilon)
        logits = (flat @ self.projection.t()) * scale[:, None]  # scaled after the product, which is linear
        parts = zip(logits.split([count, count, count**2], 1), self.scale, self.base.split([count, count, count**2]), strict=True)
        pre, post, comb = (part * weight + base for part, weight, base in parts)
        x_ND = ((pre.sigmoid() + FLOOR)[:, None] @ streams_NSD).squeeze(1)
        return x_ND, Mixing(2 * post.sigmoid(), sinkhorn(comb.unflatten(1, (count, count))))
