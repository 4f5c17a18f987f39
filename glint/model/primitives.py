"""RMSNorm, rotary positions and the gated MLP, with hand-written gradients where they save memory traffic."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import silu


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        scale = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        x, weight, scale = ctx.saved_tensors
        unit = x * scale
        grad = grad.float()
        grad_weight = torch.linalg.vecdot(grad, unit, dim=0) if ctx.needs_input_grad[1] else None
        grad_unit = grad * weight
        radial = torch.linalg.vecdot(grad_unit, unit).div_(x.shape[-1]).unsqueeze_(-1)
        return grad_unit.sub_(unit.mul_(radial)).mul_(scale), grad_weight, None, None


def rms_norm(x_ND: Tensor, weight_D: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
    """Return x / sqrt(mean(x^2) + epsilon) * weight, computed in float32 and rounded to `dtype` (Zhang and Sennrich, 2019)."""
    return _RMSNorm.apply(x_ND, weight_D, epsilon, dtype)


def rotary_angles(positions: Tensor, head_size: int, base: float) -> Tensor:
    """Return the unit complex numbers [..., K/2] by which RoPE turns the pairs (2j, 2j+1) at `positions` (Su et al., 2021)."""
    frequencies = base ** (-torch.arange(0, head_size, 2, dtype=torch.float64, device="cpu") / head_size)
    angles = positions.to("cpu", torch.float64)[..., None] * frequencies
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64).to(positions.device)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Return float32 `x` [..., K] with its interleaved pairs turned by `angles` [..., K/2]."""
    pairs = torch.view_as_complex(x.float().contiguous().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * angles).flatten(-2)


CPU_ROW_BLOCK = 1024
"""Rows that pass the gated MLP at a time on a CPU, so that what one product writes is still in the cache when the next reads it."""


class _GatedMLP(torch.autograd.Function):
    """down(silu(gate) * value) for rows sorted by expert."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, up_E2FD: Tensor, down_EFD: Tensor, counts: Sequence[int]) -> Tensor:
        ctx.segments = _segments(counts, x_ND.device)
        gate_NF, value_NF = (x_ND.new_empty(len(x_ND), up_E2FD.shape[2]) for _ in range(2))
        y_ND = torch.empty_like(x_ND)
        for expert, rows in ctx.segments:
            gate, value = gate_NF[rows], value_NF[rows]
            torch.mm(x_ND[rows], up_E2FD[expert, 0].t(), out=gate)
            torch.mm(x_ND[rows], up_E2FD[expert, 1].t(), out=value)
            torch.mm(silu(gate).mul_(value), down_EFD[expert], out=y_ND[rows])
        ctx.save_for_backward(x_ND, up_E2FD, down_EFD, gate_NF, value_NF)
        return y_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        x_ND, up_E2FD, down_EFD, gate_NF, value_NF = ctx.saved_tensors
        grad_x_ND = torch.empty_like(x_ND)
        grad_up, grad_down = (
            _like(weight, ctx.segments) if wanted else None
            for weight, wanted in zip((up_E2FD, down_EFD), ctx.needs_input_grad[1:3], strict=True)
        )
        begun: set[int] = set()
        for expert, rows in ctx.segments:
            gate, value, x, grad = gate_NF[rows], value_NF[rows], x_ND[rows], grad_ND[rows]
            activated = silu(gate)
            grad_product = grad @ down_EFD[expert].t()
            grad_value = grad_product * activated
            grad_gate = torch.ops.aten.silu_backward(grad_product.mul_(value), gate)
            torch.mm(grad_gate, up_E2FD[expert, 0], out=grad_x_ND[rows]).addmm_(grad_value, up_E2FD[expert, 1])
            accumulate = expert in begun
            begun.add(expert)
            if grad_up is not None:
                _add_product(grad_up[expert, 0], grad_gate.t(), x, accumulate)
                _add_product(grad_up[expert, 1], grad_value.t(), x, accumulate)
            if grad_down is not None:
                _add_product(grad_down[expert], activated.mul_(value).t(), grad, accumulate)
        return grad_x_ND, grad_up, grad_down, None


def _like(weight_EXX: Tensor, segments: list[tuple[int, slice]]) -> Tensor:
    """Return an uninitialised gradient, zero for the experts that no row passes."""
    grad = torch.empty_like(weight_EXX)
    for idle in set(range(len(weight_EXX))) - {expert for expert, _ in segments}:
        grad[idle].zero_()
    return grad


def _add_product(total: Tensor, left: Tensor, right: Tensor, accumulate: bool) -> None:
    """Add left @ right to `total`, or write it there: without a sum to read the product is nearly twice as fast in bf16."""
    if accumulate:
        total.addmm_(left, right)
    else:
        torch.mm(left, right, out=total)


def _segments(counts: Sequence[int], device: torch.device) -> list[tuple[int, slice]]:
    """Return (expert, rows) pieces in order: consecutive rows of one expert, on a CPU at most CPU_ROW_BLOCK of them."""
    segments, start = [], 0
    for expert, count in enumerate(counts):
        block = CPU_ROW_BLOCK if device.type == "cpu" else max(count, 1)
        segments += [(expert, slice(first, min(first + block, start + count))) for first in range(start, start + count, block)]
        start += count
    return segments


def gated_mlp(x_ND: Tensor, up_E2FD: Tensor, down_EFD: Tensor, counts: Sequence[int]) -> Tensor:
    """Return down(silu(gate x) * (value x)) [N, D]; the first counts[0] rows pass expert 0, the next counts[1] expert 1, and so on.

    `up_E2FD[e, 0]` is the gate, `up_E2FD[e, 1]` the value projection (Shazeer, 2020: SwiGLU).
    """
    return _GatedMLP.apply(x_ND, up_E2FD, down_EFD, counts)
