"""Linear and strided sparse attention: for whole rows (training, prefill) and one position at a time (decoding).

Both forms take the projections of packed tokens, qkv [N, 3D] (rows of the weight: q, then k, then v; heads contiguous),
and give the attended values [N, D]. A layout with a shared prompt lets every row attend to the prompt as well.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from glint.model.layout import Indices, Layout
from glint.model.primitives import rotate

DENOMINATOR_FLOOR = 1e-6


@dataclass(frozen=True)
class Segment:
    """Tokens that attention sees side by side: the shared prompt as one row, or all rows after it."""

    first: int
    """Packed index of the first token."""
    rows: int
    longest: int
    indices: Indices
    angles: Tensor
    """[1, 1, T, K/2] rotary angles of the padded positions."""


def feature_map(x: Tensor) -> Tensor:
    """Return phi(x) = elu(x) + 1, positive (Katharopoulos et al., 2020): x + 1 above 0 and exp(x) below, overwriting float32 `x`."""
    above = (x + 1).clamp_(min=1)
    return torch.minimum(x.exp_(), above, out=x)


class _Project(torch.autograd.Function):
    """Split padded qkv into rotated q and k and plain v, [R, H, T, K] each.

    For linear attention q and k pass phi, and all take the compute dtype; for softmax attention all are float32.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, angles: Tensor, linear: bool) -> tuple[Tensor, Tensor, Tensor]:
        qk_2RHTK = rotate(qkv[:, :, :2].permute(2, 0, 3, 1, 4).contiguous(), angles)
        if linear:
            qk_2RHTK = feature_map(qk_2RHTK)
            qk_2RHTK = qk_2RHTK.to(qkv.dtype)
        ctx.linear, ctx.dtype = linear, qkv.dtype
        ctx.save_for_backward(angles, qk_2RHTK if linear else None)
        return qk_2RHTK[0], qk_2RHTK[1], qkv[:, :, 2].transpose(1, 2).to(qk_2RHTK.dtype).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_q: Tensor, grad_k: Tensor, grad_v: Tensor) -> tuple[Tensor, None, None]:
        angles, qk_2RHTK = ctx.saved_tensors
        rows, heads, positions, size = grad_q.shape
        grad_qkv = grad_q.new_empty(rows, positions, 3, heads, size, dtype=ctx.dtype)
        for part, grad in enumerate((grad_q, grad_k)):
            # phi'(x) is 1 for x > 0 and exp(x) = phi(x) elsewhere: min(phi, 1)
            grad_rotated = grad * qk_2RHTK[part].clamp(max=1) if ctx.linear else grad
            grad_qkv[:, :, part] = rotate(grad_rotated, angles.conj()).transpose(1, 2)
        grad_qkv[:, :, 2] = grad_v.transpose(1, 2)
        return grad_qkv, None, None


class _LinearRows(torch.autograd.Function):
    """The quadratic masked form, the cheapest at these lengths. v carries a column of ones, so that one product gives both sums."""

    @staticmethod
    def forward(ctx: Any, q_RHTK: Tensor, k_RHTK: Tensor, v1_RHTK: Tensor, before_RHKK: Tensor | None) -> Tensor:
        rows, heads = q_RHTK.shape[:2]
        q_BTK, k_BTK, v1_BTK = (x.flatten(0, 1) for x in (q_RHTK, k_RHTK, v1_RHTK))
        weights_BTT = torch.bmm(q_BTK, k_BTK.transpose(1, 2)).tril_()
        sums = torch.bmm(weights_BTT, v1_BTK).unflatten(0, (rows, heads))
        if before_RHKK is not None:
            sums += q_RHTK @ before_RHKK
        total = sums[..., -1:].clamp(min=DENOMINATOR_FLOOR)
        attended = sums[..., :-1] / total
        ctx.save_for_backward(q_RHTK, k_BTK, v1_BTK, weights_BTT, before_RHKK, total, attended)
        return attended

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q_RHTK, k_BTK, v1_BTK, weights_BTT, before_RHKK, total, attended = ctx.saved_tensors
        grad_v = grad / total
        above_floor = total > DENOMINATOR_FLOOR
        grad_sums = torch.cat([grad_v, (grad_v * attended).sum(-1, keepdim=True).neg_().mul_(above_floor)], -1)
        grad_sums_BTK = grad_sums.flatten(0, 1)
        grad_weights = torch.bmm(grad_sums_BTK, v1_BTK.transpose(1, 2)).tril_()
        grad_q = torch.bmm(grad_weights, k_BTK).view_as(q_RHTK)
        grad_k = torch.bmm(grad_weights.transpose(1, 2), q_RHTK.flatten(0, 1)).view_as(q_RHTK)
        grad_v1 = torch.bmm(weights_BTT.transpose(1, 2), grad_sums_BTK).view_as(grad_sums)
        grad_before = None
        if before_RHKK is not None:
            grad_q += grad_sums @ before_RHKK.transpose(-1, -2)
            grad_before = (q_RHTK.transpose(-1, -2) @ grad_sums).sum_to_size(before_RHKK.shape)
        return grad_q, grad_k, grad_v1, grad_before


class _SoftmaxRows(torch.autograd.Function):
    """softmax(q k^T K^-0.5 + mask) v in float32: at these lengths that beats the fused kernel and a mix of precisions."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask_TT: Tensor) -> Tensor:
        scaled_q = q * q.shape[-1] ** -0.5
        shares = torch.softmax((scaled_q @ k.transpose(-1, -2)).add_(mask_TT), -1)
        ctx.save_for_backward(scaled_q, k, v, shares)
        return shares @ v

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        scaled_q, k, v, shares = ctx.saved_tensors
        grad_scores = torch._softmax_backward_data(grad @ v.transpose(-1, -2), shares, -1, torch.float32)
        grad_q = (grad_scores @ k).mul_(k.shape[-1] ** -0.5)
        return grad_q, grad_scores.transpose(-1, -2) @ scaled_q, shares.transpose(-1, -2) @ grad, None


def _split(qkv_NX: Tensor, segment: Segment, heads: int, linear: bool) -> tuple[Tensor, Tensor, Tensor]:
    own = segment.indices.pad(qkv_NX)
    return _Project.apply(own.view(segment.rows, segment.longest, 3, heads, -1), segment.angles, linear)


def _merge(attended_RHTK: Tensor, segment: Segment) -> Tensor:
    return segment.indices.unpad(attended_RHTK.transpose(1, 2).flatten(0, 1).flatten(1))


def _spans(qkv_NX: Tensor, segments: list[Segment]) -> tuple[Tensor, ...]:
    return qkv_NX.tensor_split([segment.first for segment in segments[1:]])


@dataclass
class LinearState:
    """The whole decode cache of a linear layer: S = sum phi(k) v^T and z = sum phi(k), float32, constant in length."""

    s_RHKK: Tensor
    z_RHK: Tensor

    def select(self, rows: Tensor) -> "LinearState":
        """Return the state of the rows `rows`, repeated or dropped as the index says."""
        return LinearState(self.s_RHKK.index_select(0, rows), self.z_RHK.index_select(0, rows))


def linear_attention(qkv_NX: Tensor, segments: list[Segment], heads: int, states: list[Any] | None = None) -> Tensor:
    """Return phi(q_t) S_t / max(phi(q_t) z_t, 1e-6) for every token, S_t and z_t summed over the row up to and with t.

    Where `states` is a list, the state after each row's last token is appended to it.
    """
    outputs = []
    before = None
    for segment, own in zip(segments, _spans(qkv_NX, segments), strict=True):
        q, k, v = _split(own, segment, heads, linear=True)
        v1 = torch.cat([v, v.new_ones(*v.shape[:-1], 1)], -1)
        outputs.append(_merge(_LinearRows.apply(q, k, v1, before), segment))
        if segment is not segments[-1] or states is not None:
            before = _final_state(k, v1, segment, before)
    if states is not None and before is not None:
        states.append(LinearState(before[..., :-1].float(), before[..., -1].float()))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _final_state(k: Tensor, v1: Tensor, segment: Segment, before: Tensor | None) -> Tensor:
    """Return sum phi(k) [v 1]^T over the real tokens of each row: [S z], [R, H, K, K+1]."""
    if not segment.indices.identity:
        k = k * segment.indices.real_RT[:, None, :, None]
    state = k.transpose(2, 3) @ v1
    return state if before is None else before + state


def linear_step(qkv_RX: Tensor, angles_RK: Tensor, state: LinearState) -> Tensor:
    """Add one position to `state` in place and return its attended values [R, D]."""
    heads, size = state.z_RHK.shape[1:]
    q, k, v = qkv_RX.float().view(-1, 3, heads, size).unbind(1)
    q, k = (feature_map(rotate(x, angles_RK[:, None])) for x in (q, k))
    state.s_RHKK.addcmul_(k[..., None], v[..., None, :])
    state.z_RHK.add_(k)
    total_v = torch.matmul(q[..., None, :], state.s_RHKK).squeeze(-2)
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
    def empty(cls, like: Tensor, rows: int, window: int, stride: int, longest: int) -> "SparseCache":
        """Return a cache for `rows` rows of at most `longest` positions; `like` [R, H, T, K] gives heads, size and dtype."""
        slots = window + -(-longest // stride)
        k, v = (like.new_zeros(rows, like.shape[1], slots, like.shape[3]) for _ in range(2))
        return cls(k, v, torch.full((rows, slots), -1, device=like.device), window, stride)

    def select(self, rows: Tensor) -> "SparseCache":
        """Return the cache of the rows `rows`, repeated or dropped as the index says."""
        k, v, positions = (x.index_select(0, rows) for x in (self.k_RHCK, self.v_RHCK, self.positions_RC))
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
    qkv_NX: Tensor, segments: list[Segment], heads: int, window: int, stride: int, caches: list[Any] | None = None, longest: int = 0
) -> Tensor:
    """Return softmax attention over the visible positions, scale K^-0.5.

    Where `caches` is a list, the cache after each row's last token, with room for `longest` positions, is appended to it.
    """
    outputs = []
    past: tuple[Tensor, Tensor, Tensor] | None = None
    start = 0
    for segment, own in zip(segments, _spans(qkv_NX, segments), strict=True):
        q, k, v = _split(own, segment, heads, linear=False)
        positions = torch.arange(start, start + segment.longest, device=q.device)
        keys, values, key_positions = k, v, positions
        if past is not None:
            keys = torch.cat([past[0].expand(segment.rows, -1, -1, -1), k], 2)
            values = torch.cat([past[1].expand(segment.rows, -1, -1, -1), v], 2)
            key_positions = torch.cat([past[2], positions])
        hidden_TT = ~visible(positions, key_positions, window, stride)
        mask_TT = torch.zeros(hidden_TT.shape, device=q.device).masked_fill_(hidden_TT, float("-inf"))
        outputs.append(_merge(_SoftmaxRows.apply(q, keys, values, mask_TT).to(qkv_NX.dtype), segment))
        past = (keys, values, key_positions)
        start += segment.longest
    if caches is not None and past is not None:
        caches.append(_filled_cache(past, segments, window, stride, longest))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _filled_cache(past: tuple[Tensor, Tensor, Tensor], segments: list[Segment], window: int, stride: int, longest: int) -> SparseCache:
    keys, values, positions = past
    own = segments[-1]
    cache = SparseCache.empty(keys, own.rows, window, stride, longest)
    earlier = keys.shape[2] - own.longest
    lengths_R = own.indices.real_RT.sum(1) + earlier
    kept = (positions < lengths_R[:, None]) & ((lengths_R[:, None] - positions <= window) | (positions % stride == 0))
    rows, columns = kept.nonzero(as_tuple=True)
    in_ring = lengths_R[rows] - positions[columns] <= window
    k, v = keys[rows, :, columns], values[rows, :, columns]
    strided = positions[columns] % stride == 0
    for chosen, slots in ((in_ring, positions[columns] % window), (strided, window + positions[columns] // stride)):
        cache._put(rows[chosen], slots[chosen], positions[columns][chosen], k[chosen], v[chosen])
    return cache


def sparse_step(qkv_RX: Tensor, angles_RK: Tensor, positions_R: Tensor, cache: SparseCache) -> Tensor:
    """Add one position a row to `cache` in place and return its attended values [R, D]."""
    heads, size = cache.k_RHCK.shape[1], cache.k_RHCK.shape[3]
    q, k, v = qkv_RX.view(-1, 3, heads, size).unbind(1)
    q, k = (rotate(x, angles_RK[:, None]) for x in (q, k))
    cache.write(torch.arange(len(q), device=q.device), positions_R, k, v.float())
    mask = cache.seen(positions_R)[:, None, None]
    return scaled_dot_product_attention(q[:, :, None], cache.k_RHCK, cache.v_RHCK, attn_mask=mask).flatten(1).to(qkv_RX.dtype)


def segments_of(layout: Layout, angles: Tensor) -> list[Segment]:
    """Return the prompt (if any) and the rows of `layout`; `angles` [context, K/2] are those of all positions."""
    segments = []
    if layout.prompt:
        alone = Layout((layout.prompt,))
        segments.append(Segment(0, 1, layout.prompt, alone.indices(angles.device), angles[None, None, : layout.prompt]))
    own = angles[None, None, layout.prompt : layout.prompt + layout.longest]
    segments.append(Segment(layout.prompt, layout.rows, layout.longest, layout.indices(angles.device), own))
    return segments
