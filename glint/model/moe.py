"""Mixture of experts: a router sends each token to its top k experts, and every token passes the shared expert, unscaled.

`up` [E+1, D, 2F] and `down` [E+1, F, D] hold the routed experts, then the shared one; a row of `x @ up[e]` is its gates, then its values.
"""

import torch
from torch import Tensor, nn

from glint.config.model import ModelRecipe
from glint.device import compiles
from glint.model import compiled
from glint.model.mechanism import NO_STARTS, Parameters, Weights
from glint.model.primitives import gated_mlp


def balance_loss(usage_LE: Tensor) -> Tensor:
    """Return E * mean_e((mean_layers usage_e - 1/E)^2), 0 where every expert gets its share, and where no layer routes (L = 0)."""
    if not len(usage_LE):
        return usage_LE.new_zeros(())
    experts = usage_LE.shape[1]
    return experts * (usage_LE.mean(0) - 1 / experts).square().mean()


def route(logits_NE: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Return the softmax over the `top_k` largest logits of each token, and their experts, [N, k] each."""
    if compiles(logits_NE.device):
        return compiled.route(logits_NE, top_k)
    chosen, experts_NK = logits_NE.float().topk(top_k, dim=-1)
    return torch.softmax(chosen, -1), experts_NK


def mixture(
    residual_ND: Tensor, x_ND: Tensor, weights_NK: Tensor, experts_NK: Tensor, up: Tensor, down: Tensor, limit: float | None
) -> tuple[Tensor, Tensor]:
    """Return residual + shared(x) + sum over the chosen experts of weight * expert(x), and the share of routed slots an expert got [E]."""
    if compiles(x_ND.device):
        return compiled.mixture(residual_ND, x_ND, weights_NK, experts_NK, up, down, limit)
    total_ND = residual_ND + gated_mlp(x_ND, up[-1], down[-1], limit)
    for expert in range(len(up) - 1):
        tokens, choices = (experts_NK == expert).nonzero(as_tuple=True)
        routed = gated_mlp(x_ND[tokens], up[expert], down[expert], limit)
        total_ND = total_ND.index_add(0, tokens, weights_NK[tokens, choices, None] * routed)
    counts_E = torch.bincount(experts_NK.flatten(), minlength=len(up) - 1)
    return total_ND, counts_E / counts_E.sum()


def mixture_step(
    residual_RD: Tensor, x_RD: Tensor, weights_RK: Tensor, experts_RK: Tensor, up: Tensor, down: Tensor, limit: float | None
) -> Tensor:
    """Return what `mixture` returns for a few rows: all experts at once, those not chosen at weight 0."""
    share_RE = x_RD.new_zeros(len(x_RD), len(up), dtype=torch.float32).scatter_(1, experts_RK, weights_RK)
    share_RE[:, -1] = 1
    return residual_RD + torch.einsum("re,erd->rd", share_RE, gated_mlp(x_RD, up, down, limit).float())


class Mixture:
    """Softmax-routed experts and a shared one; a subclass may choose the experts otherwise."""

    matrices: tuple[str, ...] = ("router", "up", "down")
    starts = NO_STARTS

    def __init__(self, recipe: ModelRecipe) -> None:
        self.recipe = recipe

    @property
    def idle_parameters(self) -> int:
        """Parameters of the experts that a token is not sent to."""
        recipe = self.recipe
        return (recipe.experts - recipe.top_k) * 3 * recipe.expert_hidden * recipe.width

    def parameters(self) -> Parameters:
        """Return `router` [E, D], `up` and `down`."""
        width, hidden, experts = self.recipe.width, self.recipe.expert_hidden, self.recipe.experts
        shapes = {"router": (experts, width), "up": (experts + 1, width, 2 * hidden), "down": (experts + 1, hidden, width)}
        return {name: nn.Parameter(torch.empty(shape)) for name, shape in shapes.items()}

    def decoding(self, weights: Weights) -> Weights:
        """Return `weights` as they are."""
        return weights

    def choose(self, x_ND: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """Return the weights of each token's `top_k` experts, and these experts, [N, k] each."""
        return route(x_ND @ weights["router"].t(), self.recipe.top_k)

    def forward(self, residual_ND: Tensor, x_ND: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """Return residual + change [N, D], and the share of routed slots that each expert got [E]."""
        return mixture(residual_ND, x_ND, *self.choose(x_ND, weights), weights["up"], weights["down"], self.recipe.gate_limit)

    def step(self, residual_RD: Tensor, x_RD: Tensor, weights: Weights) -> Tensor:
        """Return residual + change [R, D] of a few rows."""
        return mixture_step(residual_RD, x_RD, *self.choose(x_RD, weights), weights["up"], weights["down"], self.recipe.gate_limit)

    def balance(self, own: Weights, usage_E: Tensor) -> None:
        """Leave all as it is: what balances a softmax router is a loss."""
