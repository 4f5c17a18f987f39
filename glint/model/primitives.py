"""RMSNorm and the gated MLP, as formulas under autograd; a CPU takes the compiled norm."""

import torch
from torch import Tensor
from torch.nn.functional import silu

from glint.device import compiles
from glint.model import compiled


def rms_norm(x_ND: Tensor, weight_D: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
    """Return x / sqrt(mean(x^2) + epsilon) * weight, computed in float32 and rounded to `dtype` (Zhang and Sennrich, 2019)."""
    if compiles(x_ND.device):
        return compiled.rms_norm(x_ND, weight_D, epsilon, dtype)
    return (x_ND * torch.rsqrt(x_ND.square().mean(-1, keepdim=True) + epsilon) * weight_D).to(dtype)


def gated(gate_value_NF: Tensor, limit: float | None) -> Tensor:
    """Return silu(gate) * value [N, F] of rows that hold gates, then values [N, 2F] (Shazeer, 2020: SwiGLU).

    With a `limit` no gate and no value exceeds it, and no value its negative.
    """
    gate_NF, value_NF = gate_value_NF.chunk(2, -1)
    if limit is not None:
        gate_NF, value_NF = gate_NF.clamp(max=limit), value_NF.clamp(-limit, limit)
    return silu(gate_NF) * value_NF


def gated_mlp(x_ND: Tensor, up_DF: Tensor, down_FD: Tensor, limit: float | None) -> Tensor:
    """Return down(silu(gate) * value) [N, D]; the first half of the columns of `up` give the gate.

    Of experts stacked in front of both matrices it returns all, [E, N, D].
    """
    return gated(x_ND @ up_DF, limit) @ down_FD
