"""The dense feed-forward: one SwiGLU that every token passes."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from glint.config.model import ModelRecipe
from glint.device import compiles
from glint.model import kernels
from glint.model.compiled import array, bound
from glint.model.mechanism import NO_STARTS, Parameters, Weights
from glint.model.primitives import gated


class _CompiledGate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_value_NF: Tensor, limit: np.float32) -> Tensor:
        product_NF = gate_value_NF.new_empty(len(gate_value_NF), gate_value_NF.shape[1] // 2)
        kernels.gate(array(gate_value_NF), limit, array(product_NF))
        ctx.save_for_backward(gate_value_NF)
        ctx.limit = limit
        return product_NF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NF: Tensor) -> tuple[Tensor, None]:
        (gate_value_NF,) = ctx.saved_tensors
        grad_gate_value_NF, product_NF = torch.empty_like(gate_value_NF), torch.empty_like(grad_NF)
        given = (array(grad_NF.contiguous()), array(gate_value_NF), ctx.limit)
        kernels.gate_backward(*given, array(grad_gate_value_NF), array(product_NF))
        return grad_gate_value_NF, None


def activated(gate_value_NF: Tensor, limit: float | None) -> Tensor:
    """Return what `gated` returns; on a CPU in compiled loops."""
    return _CompiledGate.apply(gate_value_NF, bound(limit)) if compiles(gate_value_NF.device) else gated(gate_value_NF, limit)


class DenseFeedForward:
    """x -> down(silu(gate) * value), gate and value two halves of one product (Shazeer, 2020: SwiGLU)."""

    matrices = ("up", "down")
    starts = NO_STARTS
    idle_parameters = 0

    def __init__(self, recipe: ModelRecipe) -> None:
        self.recipe = recipe

    def parameters(self) -> Parameters:
        """Return `up` [D, 2F] (columns: gates, then values) and `down` [F, D]."""
        width, hidden = self.recipe.width, self.recipe.dense_hidden
        return {"up": nn.Parameter(torch.empty(width, 2 * hidden)), "down": nn.Parameter(torch.empty(hidden, width))}

    def decoding(self, weights: Weights) -> Weights:
        """Return `weights`: both matrices are multiplied from the right anyway."""
        return weights

    def forward(self, residual_ND: Tensor, x_ND: Tensor, weights: Weights) -> tuple[Tensor, None]:
        """Return residual + change [N, D], and nothing, since no token is routed."""
        return residual_ND + activated(x_ND @ weights["up"], self.recipe.gate_limit) @ weights["down"], None

    def step(self, residual_RD: Tensor, x_RD: Tensor, weights: Weights) -> Tensor:
        """Return residual + change [R, D] of a few rows."""
        return self.forward(residual_RD, x_RD, weights)[0]

    def balance(self, own: Weights, usage_E: Tensor) -> None:
        """Leave all as it is: no token is routed."""
