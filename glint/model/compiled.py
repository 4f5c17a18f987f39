"""The decoder's mechanisms on a CPU: the loops of `kernels` between PyTorch's matrix products, with gradients written by hand.

Each function returns what the formula of the same name does. Axes: those of `kernels`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from glint.model import kernels
from glint.model.layout import Rows, row_block

Where = tuple[int, NDArray[np.int64], kernels.Array, kernels.Array]
"""Tokens of the prompt, starts of the rows, cosines, sines."""
ROW_BLOCK = 1024
"""Rows that pass an expert at a time, so that what one product writes is still in the cache when the next reads it."""


def array(x: Tensor) -> NDArray[Any]:
    """Return the memory of contiguous `x`, a bfloat16 as its bits."""
    x = x.detach()
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_D: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        out_ND, scale_N = torch.empty_like(x_ND, dtype=dtype), x_ND.new_empty(len(x_ND))
        kernels.rms_norm(array(x_ND), array(weight_D), epsilon, array(out_ND), array(scale_N))
        ctx.save_for_backward(x_ND, weight_D, scale_N)
        return out_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x_ND, weight_D, scale_N = ctx.saved_tensors
        grad_x_ND, grad_weight_D = torch.empty_like(x_ND), torch.zeros_like(weight_D)
        arrays = (array(x) for x in (grad_ND.contiguous(), x_ND, weight_D, scale_N, grad_x_ND, grad_weight_D))
        kernels.rms_norm_backward(*arrays)
        return grad_x_ND, grad_weight_D, None, None


def rms_norm(x_ND: Tensor, weight_D: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
    """Return x / sqrt(mean(x^2) + epsilon) * weight, rounded to `dtype`."""
    return _RMSNorm.apply(x_ND, weight_D, epsilon, dtype)


def by_head(x: Tensor, heads: int, parts: int) -> NDArray[Any]:
    """Return packed [N, parts * D] as an array [N, parts, H, K], without the axis of parts where there is one part."""
    shape = (len(x), heads, -1) if parts == 1 else (len(x), parts, heads, x.shape[1] // (parts * heads))
    return array(x).reshape(shape)


def _where(rows: Rows) -> Where:
    return rows.layout.prompt, rows.starts, *rows.rotary.turns


class _LinearAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv_NX: Tensor, rows: Rows, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        size = qkv_NX.shape[1] // (3 * heads)
        out_NX, total_NH = qkv_NX.new_empty(len(qkv_NX), heads * size), torch.empty(len(qkv_NX), heads)
        s_RHKK = torch.empty(rows.layout.rows, heads, size, kernels.padded(size))
        z_RHK = torch.empty(rows.layout.rows, heads, size)
        where = _where(rows)
        out = by_head(out_NX, heads, 1)
        kernels.linear_attention(by_head(qkv_NX, heads, 3), *where, out, array(total_NH), array(s_RHKK), array(z_RHK))
        ctx.where, ctx.heads = where, heads
        ctx.save_for_backward(qkv_NX, out_NX, total_NH)
        ctx.mark_non_differentiable(s_RHKK, z_RHK)
        return out_NX, s_RHKK, z_RHK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NX: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        qkv_NX, out_NX, total_NH = ctx.saved_tensors
        grad_qkv_NX = torch.empty_like(qkv_NX)
        grad, qkv, out, grad_qkv = (
            by_head(x, ctx.heads, parts) for x, parts in ((grad_NX.contiguous(), 1), (qkv_NX, 3), (out_NX, 1), (grad_qkv_NX, 3))
        )
        where: Where = ctx.where
        kernels.linear_attention_backward(grad, qkv, *where, out, array(total_NH), grad_qkv)
        return grad_qkv_NX, None, None


def linear_attention(qkv_NX: Tensor, rows: Rows, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the attended values [N, D], and S [R, H, K, K] and z [R, H, K] after each row's last token, without a gradient.

    The columns of S are padded to whole registers.
    """
    return _LinearAttention.apply(qkv_NX, rows, heads)


class _SparseAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv_NX: Tensor, rows: Rows, heads: int, window: int, stride: int) -> Tensor:
        out_NX = qkv_NX.new_empty(len(qkv_NX), qkv_NX.shape[1] // 3)
        where = _where(rows)
        kernels.sparse_attention(by_head(qkv_NX, heads, 3), *where, window, stride, by_head(out_NX, heads, 1))
        ctx.where, ctx.heads, ctx.window, ctx.stride = where, heads, window, stride
        ctx.save_for_backward(qkv_NX)
        return out_NX

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NX: Tensor) -> tuple[Tensor, None, None, None, None]:
        (qkv_NX,) = ctx.saved_tensors
        grad_qkv_NX = torch.empty_like(qkv_NX)
        grad, qkv, grad_qkv = (by_head(x, ctx.heads, parts) for x, parts in ((grad_NX.contiguous(), 1), (qkv_NX, 3), (grad_qkv_NX, 3)))
        where: Where = ctx.where
        kernels.sparse_attention_backward(grad, qkv, *where, ctx.window, ctx.stride, grad_qkv)
        return grad_qkv_NX, None, None, None, None


def sparse_attention(qkv_NX: Tensor, rows: Rows, heads: int, window: int, stride: int) -> Tensor:
    """Return softmax attention [N, D] over the last `window` positions and every `stride`-th."""
    return _SparseAttention.apply(qkv_NX, rows, heads, window, stride)


class _Choice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_NE: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
        experts_NJ = torch.empty(len(logits_NE), top_k, dtype=torch.int64)
        weights_NJ = torch.empty(len(logits_NE), top_k)
        kernels.choose_experts(array(logits_NE), array(experts_NJ), array(weights_NJ))
        ctx.save_for_backward(weights_NJ, experts_NJ)
        ctx.shape, ctx.dtype = logits_NE.shape, logits_NE.dtype
        ctx.mark_non_differentiable(experts_NJ)
        return weights_NJ, experts_NJ

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_weights_NJ: Tensor, _: Tensor) -> tuple[Tensor, None]:
        grad_logits_NE = torch.zeros(ctx.shape)
        weights_NJ, experts_NJ = ctx.saved_tensors
        given = (array(grad_weights_NJ.contiguous()), array(weights_NJ), array(experts_NJ))
        kernels.choose_experts_backward(*given, array(grad_logits_NE))
        return grad_logits_NE.to(ctx.dtype), None


def route(logits_NE: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Return the softmax over the `top_k` largest logits of each token, and their experts, [N, k] each."""
    return _Choice.apply(logits_NE, top_k)


class _Experts:
    """The slots of the tokens: sorted by expert, a multiple of `block` for each, the idle ones holding token 0."""

    def __init__(self, experts_NJ: Tensor, count: int, block: int) -> None:
        chosen_NJ = array(experts_NJ)
        self.counts_E = np.bincount(chosen_NJ.ravel(), minlength=count)
        ends_E = np.cumsum((self.counts_E + block - 1) // block * block)
        self.firsts_E = np.concatenate([[0], ends_E[:-1]])
        self.slots_NJ = np.empty_like(chosen_NJ)
        self.tokens_S = np.zeros(ends_E[-1], np.int64)
        kernels.place_by_expert(chosen_NJ, self.firsts_E, self.slots_NJ, self.tokens_S)
        self.pieces = _pieces(self.firsts_E.tolist(), ends_E.tolist())

    def clear_idle(self, x_SD: Tensor) -> None:
        """Set the rows of idle slots to 0."""
        ends = [*self.firsts_E[1:].tolist(), len(self.tokens_S)]
        for end_of_real, end in zip((self.firsts_E + self.counts_E).tolist(), ends, strict=True):
            x_SD[end_of_real:end] = 0


def _pieces(firsts: Sequence[int], ends: Sequence[int]) -> list[tuple[int, slice]]:
    """Return (expert, rows): consecutive rows of one expert, at most ROW_BLOCK of them."""
    return [
        (expert, slice(start, min(start + ROW_BLOCK, end)))
        for expert, (first, end) in enumerate(zip(firsts, ends, strict=True))
        for start in range(first, end, ROW_BLOCK)
    ]


def _pass_expert(x_ND: Tensor, up_DF: Tensor, down_FD: Tensor, limit: np.float32, gate_value_NF: Tensor, y_ND: Tensor) -> None:
    """Write gates and values, and what the expert gives."""
    torch.mm(x_ND, up_DF, out=gate_value_NF)
    product_NF = x_ND.new_empty(len(x_ND), len(down_FD))
    kernels.gate(array(gate_value_NF), limit, array(product_NF))
    torch.mm(product_NF, down_FD, out=y_ND)


class _WeightGradient:
    """Sum of left^T right over the pieces of each expert; the first product is written, not added: in bf16 that is nearly twice as fast."""

    def __init__(self, weight_EXX: Tensor) -> None:
        self.total_EXX = torch.empty_like(weight_EXX)
        self.begun: set[int] = set()

    def add(self, expert: int, left_NX: Tensor, right_NX: Tensor) -> None:
        """Add the product of one piece."""
        if expert in self.begun:
            self.total_EXX[expert].addmm_(left_NX.t(), right_NX)
        else:
            torch.mm(left_NX.t(), right_NX, out=self.total_EXX[expert])
        self.begun.add(expert)

    def finished(self) -> Tensor:
        """Return the gradient, 0 for the experts that no token chose."""
        for idle in set(range(len(self.total_EXX))) - self.begun:
            self.total_EXX[idle].zero_()
        return self.total_EXX


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, residual_ND: Tensor, x_ND: Tensor, up: Tensor, down: Tensor, weights_NJ: Tensor, experts: _Experts, limit: np.float32
    ) -> Tensor:
        x_SD = x_ND.index_select(0, torch.from_numpy(experts.tokens_S))
        width = up.shape[2]
        gate_value_NF, gate_value_SF = x_ND.new_empty(len(x_ND), width), x_ND.new_empty(len(x_SD), width)
        shared_ND, y_SD = torch.empty_like(x_ND), torch.empty_like(x_SD)
        for expert, rows in experts.pieces:
            _pass_expert(x_SD[rows], up[expert], down[expert], limit, gate_value_SF[rows], y_SD[rows])
        for _, rows in _pieces([0], [len(x_ND)]):
            _pass_expert(x_ND[rows], up[-1], down[-1], limit, gate_value_NF[rows], shared_ND[rows])
        out_ND = torch.empty_like(residual_ND)
        kernels.combine(array(residual_ND), array(shared_ND), array(y_SD), array(weights_NJ), experts.slots_NJ, array(out_ND))
        ctx.experts, ctx.limit = experts, limit
        ctx.save_for_backward(x_ND, x_SD, up, down, weights_NJ, gate_value_NF, gate_value_SF, y_SD)
        return out_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor | None, ...]:
        x_ND, x_SD, up, down, weights_NJ, gate_value_NF, gate_value_SF, y_SD = ctx.saved_tensors
        experts: _Experts = ctx.experts
        grad_ND = grad_ND.contiguous()
        grad_shared_ND, grad_y_SD, grad_weights_NJ = torch.empty_like(x_ND), torch.empty_like(y_SD), torch.empty_like(weights_NJ)
        experts.clear_idle(grad_y_SD)
        arrays = (array(grad_ND), array(y_SD), array(weights_NJ), experts.slots_NJ, array(grad_shared_ND), array(grad_y_SD))
        kernels.combine_backward(*arrays, array(grad_weights_NJ))
        grad_up, grad_down = (
            _WeightGradient(weight) if wanted else None for weight, wanted in zip((up, down), ctx.needs_input_grad[2:4], strict=True)
        )
        grad_x_SD, grad_copy_ND = torch.empty_like(x_SD), torch.empty_like(x_ND)
        shared = len(up) - 1
        routed = [(expert, rows, x_SD, gate_value_SF, grad_y_SD, grad_x_SD) for expert, rows in experts.pieces]
        common = [(shared, rows, x_ND, gate_value_NF, grad_shared_ND, grad_copy_ND) for _, rows in _pieces([0], [len(x_ND)])]
        for expert, rows, x, gate_value, grad, grad_x in routed + common:
            grad_product = grad[rows] @ down[expert].t()
            product, grad_gate_value = torch.empty_like(grad_product), torch.empty_like(gate_value[rows])
            kernels.gate_backward(array(grad_product), array(gate_value[rows]), ctx.limit, array(grad_gate_value), array(product))
            torch.mm(grad_gate_value, up[expert].t(), out=grad_x[rows])
            if grad_up is not None:
                grad_up.add(expert, x[rows], grad_gate_value)
            if grad_down is not None:
                grad_down.add(expert, product, grad[rows])
        grad_x_ND = torch.empty_like(x_ND)
        kernels.sum_copies(array(grad_copy_ND), array(grad_x_SD), experts.slots_NJ, array(grad_x_ND))
        grads = (gradient.finished() if gradient else None for gradient in (grad_up, grad_down))
        return grad_ND, grad_x_ND, *grads, grad_weights_NJ, None, None


def mixture(
    residual_ND: Tensor, x_ND: Tensor, weights_NJ: Tensor, experts_NJ: Tensor, up: Tensor, down: Tensor, limit: float | None
) -> tuple[Tensor, Tensor]:
    """Return residual + shared(x) + sum over the chosen experts of weight * expert(x), and the share of routed slots an expert got [E]."""
    experts = _Experts(experts_NJ, len(up) - 1, row_block(x_ND.dtype))
    counts_E = torch.from_numpy(experts.counts_E)
    total_ND = _Mixture.apply(residual_ND, x_ND, up, down, weights_NJ.contiguous(), experts, bound(limit))
    return total_ND, counts_E / counts_E.sum()


def bound(limit: float | None) -> np.float32:
    """Return the limit of gates and values that the loops take; none is infinity."""
    return kernels.UNLIMITED if limit is None else np.float32(limit)


def fill_cache(qkv_NX: Tensor, rows: Rows, k_RHCK: Tensor, v_RHCK: Tensor, positions_RC: Tensor, window: int, stride: int) -> None:
    """Keep of every row the last `window` positions and every `stride`-th."""
    cache = (array(k_RHCK), array(v_RHCK), array(positions_RC))
    qkv = by_head(qkv_NX, k_RHCK.shape[1], 3)
    kernels.fill_cache(qkv, rows.layout.prompt, rows.starts, *rows.rotary.turns, window, stride, *cache)


DeltaInputs = tuple[kernels.Array, kernels.Array, kernels.Array, kernels.Array, kernels.Array, kernels.Array]
"""Of the delta rule: inputs, kernel, z, bias, rate, beta."""
Extent = tuple[int, NDArray[np.int64], int]
"""Tokens of the prompt, starts of the rows, tokens of the longest."""


class _DeltaAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_NX: Tensor, z_ND: Tensor, beta_NH: Tensor, convolution_XJ: Tensor, bias_D: Tensor, log_rate_H: Tensor, rows: Rows
    ) -> tuple[Tensor, Tensor]:
        heads = len(log_rate_H)
        given = _delta_inputs(x_NX, z_ND, beta_NH, convolution_XJ, bias_D, log_rate_H)
        where: Extent = (rows.layout.prompt, rows.starts, max(rows.layout.prompt, rows.layout.longest))
        size = len(bias_D) // heads
        out_NHK, s_RHKV = torch.empty(len(x_NX), heads, size), torch.empty(rows.layout.rows, heads, size, kernels.padded(size))
        kernels.delta_attention(*given, *where, array(out_NHK), array(s_RHKV))
        ctx.where = where
        ctx.save_for_backward(x_NX, z_ND, beta_NH, convolution_XJ, bias_D, log_rate_H)
        ctx.mark_non_differentiable(s_RHKV)
        return out_NHK, s_RHKV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NHK: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        x_NX, z_ND, beta_NH, convolution_XJ, bias_D, log_rate_H = ctx.saved_tensors
        heads = len(log_rate_H)
        given = _delta_inputs(x_NX, z_ND, beta_NH, convolution_XJ, bias_D, log_rate_H)
        grad_x_NX, grad_z_ND, grad_beta_NH = (torch.empty_like(x) for x in (x_NX, z_ND, beta_NH))
        grad_kernel_H3JK, grad_bias_D, grad_log_rate_H = torch.zeros(given[1].shape), torch.zeros_like(bias_D), torch.zeros_like(log_rate_H)
        grads = (by_head(grad_x_NX, heads, 3), array(grad_kernel_H3JK), by_head(grad_z_ND, heads, 1), array(grad_bias_D.view(heads, -1)))
        where: Extent = ctx.where
        vectors = (array(grad_log_rate_H), array(grad_beta_NH))
        kernels.delta_attention_backward(array(grad_NHK.contiguous()), *given, *where, *grads, *vectors)
        grad_convolution_XJ = grad_kernel_H3JK.permute(1, 0, 3, 2).reshape(convolution_XJ.shape)
        return grad_x_NX, grad_z_ND, grad_beta_NH, grad_convolution_XJ, grad_bias_D, grad_log_rate_H, None


def _delta_inputs(x_NX: Tensor, z_ND: Tensor, beta_NH: Tensor, convolution_XJ: Tensor, bias_D: Tensor, log_rate_H: Tensor) -> DeltaInputs:
    """Return what the loops read, by head."""
    heads = len(log_rate_H)
    kernel_H3JK = convolution_XJ.detach().view(3, heads, -1, convolution_XJ.shape[1]).permute(1, 0, 3, 2).contiguous()
    bias_HK, rate_H = bias_D.view(heads, -1), log_rate_H.detach().exp()
    return by_head(x_NX, heads, 3), array(kernel_H3JK), by_head(z_ND, heads, 1), array(bias_HK), array(rate_H), array(beta_NH)


def delta_attention(
    x_NX: Tensor, z_ND: Tensor, beta_NH: Tensor, convolution_XJ: Tensor, bias_D: Tensor, log_rate_H: Tensor, rows: Rows
) -> tuple[Tensor, Tensor]:
    """Return what queries read by the delta rule, float32 [N, H, K], and S after each row's last token [R, H, K, V], without a gradient.

    Inputs before convolution, z before the bias and beta before the sigmoid; columns of S are padded to whole registers.
    """
    return _DeltaAttention.apply(x_NX, z_ND, beta_NH, convolution_XJ, bias_D, log_rate_H, rows)


def delta_step(
    x_RX: Tensor,
    z_RD: Tensor,
    beta_RH: Tensor,
    convolution_XJ: Tensor,
    bias_D: Tensor,
    log_rate_H: Tensor,
    inputs_RJX: Tensor,
    s_RHKV: Tensor,
) -> Tensor:
    """Advance the inputs and S of every row by one token, in place, and return what its query reads, float32 [R, H, K]."""
    heads = len(log_rate_H)
    given = _delta_inputs(x_RX, z_RD, beta_RH, convolution_XJ, bias_D, log_rate_H)
    out_RHK = torch.empty(len(x_RX), heads, len(bias_D) // heads)
    before_RJ3HK = array(inputs_RJX.view(*inputs_RJX.shape[:2], 3, heads, -1))
    kernels.delta_step(*given, before_RJ3HK, array(s_RHKV), array(out_RHK))
    return out_RHK


@dataclass(frozen=True)
class Hyper:
    """What the hyper-connections of a model share."""

    norm_epsilon: float
    iterations: int
    floor: float

    def constants(self) -> tuple[int, np.float32]:
        """Return how often Sinkhorn divides, and the floor."""
        return 2 * self.iterations - 1, np.float32(self.floor)


TOKEN_BLOCK = 256
"""Tokens that pass a hyper-connection at a time, so that their streams are still in the cache when the next loop or product reads them."""


def _token_blocks(tokens: int) -> list[slice]:
    return [slice(start, start + TOKEN_BLOCK) for start in range(0, tokens, TOKEN_BLOCK)]


def _rows(arrays: Sequence[kernels.Array], block: slice) -> Any:
    return [x[block] for x in arrays]


class _HyperConnection(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hyper: Hyper, *given: Tensor) -> tuple[Tensor, ...]:
        streams_NID, y_ND, post_NS, comb_NIS, projection_MX, base_M, scale_3 = given
        (tokens, streams), logits = post_NS.shape, len(base_M)
        out_NX, x_ND = torch.empty(tokens, projection_MX.shape[1]), torch.empty(y_ND.shape)
        rms_N, products_NM = torch.empty(tokens), torch.empty(tokens, logits)
        new_post_NS, new_comb_NSS = torch.empty(tokens, streams), torch.empty(tokens, streams, streams)
        out_NSD = out_NX.view(tokens, streams, -1)
        written = [array(tensor) for tensor in (streams_NID, y_ND, post_NS, comb_NIS)]
        out, rms, products, *read = (array(tensor) for tensor in (out_NSD, rms_N, products_NM, x_ND, new_post_NS, new_comb_NSS))
        mixing = (array(scale_3), array(base_M), *hyper.constants())
        for block in _token_blocks(tokens):
            before, y, post, comb = _rows(written, block)
            kernels.write_streams(before, y, post, comb, hyper.norm_epsilon, out[block], rms[block])
            torch.mm(out_NX[block], projection_MX.t(), out=products_NM[block])
            kernels.read_streams(out[block], products[block], rms[block], *mixing, *_rows(read, block))
        ctx.hyper = hyper
        ctx.save_for_backward(*given, out_NSD, rms_N, products_NM)
        return out_NSD, x_ND, new_post_NS, new_comb_NSS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        streams_NID, y_ND, post_NS, comb_NIS, projection_MX, base_M, scale_3, out_NSD, rms_N, products_NM = ctx.saved_tensors
        grad_out, *grad_read = (array(grad.contiguous()) for grad in grads)
        written_tensors = (streams_NID, y_ND, post_NS, comb_NIS)
        grad_written = [torch.empty_like(tensor) for tensor in written_tensors]
        grad_projection_MX, grad_base_M, grad_scale_3 = (torch.zeros_like(tensor) for tensor in (projection_MX, base_M, scale_3))
        grad_products_NM, total_NX = torch.empty_like(products_NM), torch.empty(TOKEN_BLOCK, projection_MX.shape[1])
        pre, radial = np.empty(post_NS.shape, np.float32), np.empty(len(post_NS), np.float32)
        out, rms, products, grad_products = (array(tensor) for tensor in (out_NSD, rms_N, products_NM, grad_products_NM))
        written, grads_of_written = [array(tensor) for tensor in written_tensors], [array(tensor) for tensor in grad_written]
        hyper: Hyper = ctx.hyper
        mixing = (array(scale_3), array(base_M), *hyper.constants())
        sums = (array(grad_scale_3), array(grad_base_M))
        out_NX, total = out_NSD.flatten(1), array(total_NX).reshape(TOKEN_BLOCK, *out.shape[1:])
        for block in _token_blocks(len(post_NS)):
            coefficients = (pre[block], radial[block])
            of_x, of_post, of_comb = _rows(grad_read, block)
            kernels.read_streams_backward(
                of_x, of_post, of_comb, out[block], products[block], rms[block], *mixing, *coefficients, grad_products[block], *sums
            )
            grad_projection_MX.addmm_(grad_products_NM[block].t(), out_NX[block])
            count = len(pre[block])
            torch.mm(grad_products_NM[block], projection_MX, out=total_NX[:count])
            whole = (grad_out[block], grad_read[0][block], *coefficients, out[block])
            before, y, post, comb = _rows(written, block)
            of_before, of_y, of_post, of_comb = _rows(grads_of_written, block)
            kernels.write_streams_backward(*whole, before, y, post, comb, total[:count], of_before, of_y, of_post, of_comb)
        return None, *grad_written, grad_projection_MX, grad_base_M, grad_scale_3


def hyper_connection(hyper: Hyper, written: Sequence[Tensor], connection: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Write, then read: return the new streams [N, S, D], what is read [N, D], and how to write next, post [N, S] and comb [N, S, S].

    `written` are the streams before [N, I, D], what is added [N, D], post [N, S] and comb [N, I, S]; `connection` its projection, base and
    scale.
    """
    return _HyperConnection.apply(hyper, *(tensor.contiguous() for tensor in written), *connection)
