"""Causal softmax attention over all positions, with half-split rotary positions: as in Llama (Touvron et al., 2023).

Queries and keys are turned in float32 and rounded to the compute dtype, in which decoding keeps them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from glint.device import compiles
from glint.model.layout import Rows, Segment
from glint.model.qkv import QKVAttention
from glint.model.rotary import Rotary, rotate_halves

SLOT_BLOCK = 32
"""Slots of a cache come in multiples of this, so that decode steps meet few new shapes."""


def rounded(positions: int) -> int:
    """Return the number of slots for so many positions."""
    return -(-positions // SLOT_BLOCK) * SLOT_BLOCK


@dataclass
class DenseCache:
    """Keys and values of every position so far, in the compute dtype: slot c holds position c."""

    k_RHCK: Tensor
    v_RHCK: Tensor

    @classmethod
    def of(cls, k_RHTK: Tensor, v_RHTK: Tensor) -> "DenseCache":
        """Return the cache after rows of which each has at most T positions; what lies behind a row's end is never seen."""
        missing = rounded(k_RHTK.shape[2]) - k_RHTK.shape[2]
        return cls(*(pad(x.detach(), (0, 0, 0, missing)).contiguous() for x in (k_RHTK, v_RHTK)))

    def select(self, rows: Tensor) -> "DenseCache":
        """Return the cache of the rows `rows`, repeated or dropped as the index says."""
        return DenseCache(self.k_RHCK.index_select(0, rows), self.v_RHCK.index_select(0, rows))

    def write(self, positions_R: Tensor, k_RHK: Tensor, v_RHK: Tensor) -> int:
        """Keep one position a row; return the number of slots that now hold something, rounded up."""
        slots = rounded(int(positions_R.max()) + 1)
        missing = slots - self.k_RHCK.shape[2]
        if missing > 0:
            self.k_RHCK, self.v_RHCK = (pad(x, (0, 0, 0, missing)) for x in (self.k_RHCK, self.v_RHCK))
        rows = torch.arange(len(positions_R), device=positions_R.device)
        self.k_RHCK[rows, :, positions_R] = k_RHK
        self.v_RHCK[rows, :, positions_R] = v_RHK
        return slots


def _turned(own: Tensor, segment: Segment, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return padded q and k, turned, and v, [R, H, T, K] each, in the compute dtype."""
    q, k, v = segment.split(own, heads)
    return rotate_halves(q, segment.angles).to(own.dtype), rotate_halves(k, segment.angles).to(own.dtype), v


def _attended(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
    """Return softmax(q k^T K^-0.5) v over what is `seen` (None: the causal half) by PyTorch's fused kernel.

    On a CPU in float32: there the kernel's gradient in bf16 takes more than twice as long.
    """
    dtype = torch.float32 if compiles(q.device) else q.dtype
    return scaled_dot_product_attention(q.to(dtype), k.to(dtype), v.to(dtype), attn_mask=seen, is_causal=seen is None).to(q.dtype)


def dense_attention(qkv_NX: Tensor, rows: Rows, heads: int, caches: list[Any] | None = None) -> Tensor:
    """Return softmax(q_t . k_s K^-0.5) v_s over s <= t for every token [N, D].

    Where `caches` is a list, the cache after each row's last token is appended to it.
    """
    outputs = []
    past: tuple[Tensor, Tensor] | None = None
    for segment, own in zip(rows.segments, rows.spans(qkv_NX), strict=True):
        q, k, v = _turned(own, segment, heads)
        seen = None
        if past is not None:
            k, v = (torch.cat([before.expand(segment.rows, -1, -1, -1), x], 2) for before, x in zip(past, (k, v), strict=True))
            seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
        outputs.append(segment.merge(_attended(q, k, v, seen)))
        past = (k, v)
    if caches is not None and past is not None:
        caches.append(DenseCache.of(*past))
    return torch.cat(outputs)


def dense_step(qkv_RX: Tensor, positions_R: Tensor, rotary: Rotary, cache: DenseCache) -> Tensor:
    """Add one position a row to `cache` in place and return its attended values [R, D]."""
    heads = cache.k_RHCK.shape[1]
    q, k, v = qkv_RX.view(len(qkv_RX), 3, heads, -1).unbind(1)
    q, k = (rotate_halves(x, rotary.angles[positions_R][:, None]).to(qkv_RX.dtype) for x in (q, k))
    slots = cache.write(positions_R, k, v)
    seen = torch.arange(slots, device=q.device) <= positions_R[:, None, None, None]
    keys, values = (x[:, :, :slots] for x in (cache.k_RHCK, cache.v_RHCK))
    return scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=seen).flatten(1)


class DenseAttention(QKVAttention):
    """Every position before a token, and itself."""

    def attend(self, qkv_NX: Tensor, rows: Rows, kept: list[Any] | None) -> Tensor:
        """Return the attended values [N, D] of packed projections."""
        return dense_attention(qkv_NX, rows, self.recipe.heads, kept)

    def attend_step(self, qkv_RX: Tensor, positions_R: Tensor, rotary: Rotary, kept: DenseCache) -> Tensor:
        """Add one position a row to `kept`, in place, and return its attended values [R, D]."""
        return dense_step(qkv_RX, positions_R, rotary, kept)
