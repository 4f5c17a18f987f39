"""Linear and strided sparse attention: for whole rows (training, prefill) and one position at a time (decoding).

Both forms take the projections of packed tokens, qkv [N, 3D] (rows of the weight: q, then k, then v; heads contiguous),
and give the attended values [N, D]. A layout with a shared prompt lets every row attend to the prompt as well.
On a CPU the compiled loops run; elsewhere the formulas here, on padded rows.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from glint.device import compiles
from glint.model import compiled, kernels
from glint.model.layout import Rows, Segment
from glint.model.qkv import QKVAttention
from glint.model.rotary import Rotary, rotate

DENOMINATOR_FLOOR = float(kernels.DENOMINATOR_FLOOR)


def feature_map(x: Tensor) -> Tensor:
    """Return phi(x) = elu(x) + 1 (Katharopoulos et al., 2020), written so that a small e^x does not vanish beside the 1."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def _split(qkv_NX: Tensor, segment: Segment, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return padded q and k, turned, and v, [R, H, T, K] each, float32."""
    q, k, v = segment.split(qkv_NX.float(), heads)
    return rotate(q, segment.angles), rotate(k, segment.angles), v


@dataclass
class LinearState:
    """The whole decode cache of a linear layer: S = sum phi(k) v^T and z = sum phi(k), float32, constant in length.

    The compiled loops pad the columns of S to whole registers.
    """

    s_RHKK: Tensor
    z_RHK: Tensor

    def select(self, rows: Tensor) -> "LinearState":
        """Return the state of the rows `rows`, repeated or dropped as the index says."""
        return LinearState(self.s_RHKK.index_select(0, rows), self.z_RHK.index_select(0, rows))


def linear_attention(qkv_NX: Tensor, rows: Rows, heads: int, states: list[Any] | None = None) -> Tensor:
    """Return phi(q_t) S_t / max(phi(q_t) z_t, 1e-6) for every token, S_t and z_t summed over the row up to and with t.

    Where `states` is a list, the state after each row's last token is appended to it.
    """
    if compiles(qkv_NX.device):
        attended_NX, s_RHKK, z_RHK = compiled.linear_attention(qkv_NX, rows, heads)
        if states is not None:
            states.append(LinearState(s_RHKK, z_RHK))
        return attended_NX
    outputs = []
    before: Tensor | None = None
    for segment, own in zip(rows.segments, rows.spans(qkv_NX), strict=True):
        q, k, v = _split(own, segment, heads)
        q, k, v1 = (x.to(qkv_NX.dtype) for x in (feature_map(q), feature_map(k), torch.cat([v, torch.ones_like(v[..., :1])], -1)))
        sums = (q @ k.transpose(-1, -2)).tril() @ v1  # the quadratic masked form: one product gives S and z, by the column of ones
        if before is not None:
            sums = sums + q @ before
        outputs.append(segment.merge(sums[..., :-1] / sums[..., -1:].clamp(min=DENOMINATOR_FLOOR)))
        before = _final_state(k, v1, segment, before)
    if states is not None and before is not None:
        states.append(LinearState(before[..., :-1].float(), before[..., -1].float()))
    return torch.cat(outputs)


def _final_state(k: Tensor, v1: Tensor, segment: Segment, before: Tensor | None) -> Tensor:
    """Return sum phi(k) [v 1]^T over the real tokens of each row: [S z], [R, H, K, K+1]."""
    if not segment.indices.identity:
        k = k * segment.indices.real_RT[:, None, :, None]
    state = k.transpose(2, 3) @ v1
    return state if before is None else before + state


def linear_step(qkv_RX: Tensor, positions_R: Tensor, rotary: Rotary, state: LinearState) -> Tensor:
    """Add one position to `state` in place and return its attended values [R, D]."""
    heads, size = state.z_RHK.shape[1:]
    q, k, v = qkv_RX.float().view(-1, 3, heads, size).unbind(1)
    q, k = (feature_map(rotate(x, rotary.angles[positions_R][:, None])) for x in (q, k))
    s_RHKK = state.s_RHKK[..., :size]
    s_RHKK.addcmul_(k[..., None], v[..., None, :])
    state.z_RHK.add_(k)
    total_v = torch.matmul(q[..., None, :], s_RHKK).squeeze(-2)
    total = torch.linalg.vecdot(q, state.z_RHK).clamp_(min=DENOMINATOR_FLOOR)
    return (total_v / total[..., None]).flatten(1).to(qkv_RX.dtype)


def visible(query_positions: Tensor, key_positions: Tensor, window: int, stride: int) -> Tensor:
    """Return whether a query sees a key: s <= t and (t - s < window or s % stride == 0)."""
    age = query_positions[..., :, None] - key_positions[..., None, :]
    return (age >= 0) & ((age < window) | (key_positions % stride == 0)[..., None, :])


@dataclass
class SparseCache:
    """The keys that a later position can still see: a ring of the last `window`, and every `stride`-th for good."""

    k_RHCK: Tensor
    v_RHCK: Tensor
    positions_RC: Tensor
    """Position held by a slot; -1 where empty. Slots [0, window) are the ring, the rest are strided."""
    window: int
    stride: int

    @classmethod
    def empty(cls, qkv_NX: Tensor, heads: int, rows: int, window: int, stride: int, longest: int) -> "SparseCache":
        """Return a float32 cache for `rows` rows of at most `longest` positions, on the device of `qkv_NX`."""
        shape = (rows, heads, window + -(-longest // stride), qkv_NX.shape[1] // (3 * heads))
        k, v = (qkv_NX.new_zeros(shape, dtype=torch.float32) for _ in range(2))
        return cls(k, v, torch.full((rows, shape[2]), -1, device=qkv_NX.device), window, stride)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return keys, values and positions."""
        return self.k_RHCK, self.v_RHCK, self.positions_RC

    def select(self, rows: Tensor) -> "SparseCache":
        """Return the cache of the rows `rows`, repeated or dropped as the index says."""
        k, v, positions = (x.index_select(0, rows) for x in self.tensors())
        return SparseCache(k, v, positions, self.window, self.stride)

    def write(self, rows: Tensor, positions: Tensor, k: Tensor, v: Tensor) -> None:
        """Keep the keys and values [n, H, K] of `positions` [n] of `rows` [n]; a row's positions come in ascending order."""
        self._put(rows, positions % self.window, positions, k, v)
        kept = (positions % self.stride == 0).nonzero().squeeze(1)
        if len(kept):
            self._put(rows[kept], self.window + positions[kept] // self.stride, positions[kept], k[kept], v[kept])

    def _put(self, rows: Tensor, slots: Tensor, positions: Tensor, k: Tensor, v: Tensor) -> None:
        self.k_RHCK[rows, :, slots] = k
        self.v_RHCK[rows, :, slots] = v
        self.positions_RC[rows, slots] = positions

    def seen(self, positions_R: Tensor) -> Tensor:
        """Return [R, C]: the filled ring slots, and the strided ones that have left the ring (a key counts once)."""
        in_ring = torch.arange(self.positions_RC.shape[1], device=positions_R.device) < self.window
        left_ring = positions_R[:, None] - self.positions_RC >= self.window
        return (self.positions_RC >= 0) & (in_ring | left_ring)


def sparse_attention(
    qkv_NX: Tensor, rows: Rows, heads: int, window: int, stride: int, caches: list[Any] | None = None, longest: int = 0
) -> Tensor:
    """Return softmax attention over the visible positions, scale K^-0.5.

    Where `caches` is a list, the cache after each row's last token, with room for `longest` positions, is appended to it.
    """
    cache = None if caches is None else SparseCache.empty(qkv_NX, heads, rows.layout.rows, window, stride, longest)
    if caches is not None:
        caches.append(cache)
    if compiles(qkv_NX.device):
        if cache is not None:
            compiled.fill_cache(qkv_NX, rows, *cache.tensors(), window, stride)
        return compiled.sparse_attention(qkv_NX, rows, heads, window, stride)
    outputs = []
    past: tuple[Tensor, Tensor, Tensor] | None = None
    start = 0
    for segment, own in zip(rows.segments, rows.spans(qkv_NX), strict=True):
        q, k, v = _split(own, segment, heads)
        positions = torch.arange(start, start + segment.longest, device=q.device)
        keys, values, key_positions = k, v, positions
        if past is not None:
            keys = torch.cat([past[0].expand(segment.rows, -1, -1, -1), k], 2)
            values = torch.cat([past[1].expand(segment.rows, -1, -1, -1), v], 2)
            key_positions = torch.cat([past[2], positions])
        seen = visible(positions, key_positions, window, stride)
        scores = (q * q.shape[-1] ** -0.5 @ keys.transpose(-1, -2)).masked_fill(~seen, float("-inf"))
        outputs.append(segment.merge((torch.softmax(scores, -1) @ values).to(qkv_NX.dtype)))
        past = (keys, values, key_positions)
        start += segment.longest
    if cache is not None and past is not None:
        _fill_cache(cache, past, rows.segments[-1])
    return torch.cat(outputs)


def _fill_cache(cache: SparseCache, past: tuple[Tensor, Tensor, Tensor], own: Segment) -> None:
    window, stride = cache.window, cache.stride
    keys, values, positions = past
    earlier = keys.shape[2] - own.longest
    lengths_R = own.indices.real_RT.sum(1) + earlier
    kept = (positions < lengths_R[:, None]) & ((lengths_R[:, None] - positions <= window) | (positions % stride == 0))
    rows, columns = kept.nonzero(as_tuple=True)
    in_ring = lengths_R[rows] - positions[columns] <= window
    k, v = keys[rows, :, columns], values[rows, :, columns]
    strided = positions[columns] % stride == 0
    for chosen, slots in ((in_ring, positions[columns] % window), (strided, window + positions[columns] // stride)):
        cache._put(rows[chosen], slots[chosen], positions[columns][chosen], k[chosen], v[chosen])


def sparse_step(qkv_RX: Tensor, positions_R: Tensor, rotary: Rotary, cache: SparseCache) -> Tensor:
    """Add one position a row to `cache` in place and return its attended values [R, D]."""
    heads, size = cache.k_RHCK.shape[1], cache.k_RHCK.shape[3]
    q, k, v = qkv_RX.view(-1, 3, heads, size).unbind(1)
    q, k = (rotate(x, rotary.angles[positions_R][:, None]) for x in (q, k))
    cache.write(torch.arange(len(q), device=q.device), positions_R, k, v.float())
    mask = cache.seen(positions_R)[:, None, None]
    return scaled_dot_product_attention(q[:, :, None], cache.k_RHCK, cache.v_RHCK, attn_mask=mask).flatten(1).to(qkv_RX.dtype)


class EluAttention(QKVAttention):
    """Linear attention with phi = elu + 1."""

    def attend(self, qkv_NX: Tensor, rows: Rows, kept: list[Any] | None) -> Tensor:
        """Return the attended values [N, D] of packed projections."""
        return linear_attention(qkv_NX, rows, self.recipe.heads, kept)

    def attend_step(self, qkv_RX: Tensor, positions_R: Tensor, rotary: Rotary, kept: LinearState) -> Tensor:
        """Add one position a row to `kept`, in place, and return its attended values [R, D]."""
        return linear_step(qkv_RX, positions_R, rotary, kept)


class StridedAttention(QKVAttention):
    """Softmax attention over the last `window` positions and every `stride`-th."""

    def attend(self, qkv_NX: Tensor, rows: Rows, kept: list[Any] | None) -> Tensor:
        """Return the attended values [N, D] of packed projections."""
        recipe = self.recipe
        return sparse_attention(qkv_NX, rows, recipe.heads, recipe.window, recipe.stride, kept, recipe.context)

    def attend_step(self, qkv_RX: Tensor, positions_R: Tensor, rotary: Rotary, kept: SparseCache) -> Tensor:
        """Add one position a row to `kept`, in place, and return its attended values [R, D]."""
        return sparse_step(qkv_RX, positions_R, rotary, kept)
