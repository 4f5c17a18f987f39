"""Mixture of experts with independent scores (DeepSeek-AI, 2024: DeepSeek-V3): a sigmoid an expert, balanced by a bias instead of a loss.

The bias joins the choice of the experts, not their weights, and learns by a rule, not by gradient: an expert with more than its share is
lowered by a fixed step, one with less is raised. Routing is float32.
"""

import torch
from torch import Tensor

from glint.model.mechanism import Parameters, Weights
from glint.model.moe import Mixture
from glint.model.ranking import first_largest

ROUTED_SCALE = 2.5
FLOOR = 1e-20
BALANCE_STEP = 1e-3


class SigmoidMixture(Mixture):
    """Experts chosen by sigmoid scores and a bias, and a shared one."""

    matrices = ("up", "down")

    def parameters(self) -> Parameters:
        """Return `router` [E, D], its bias [E], which has no gradient, `up` and `down`."""
        return {**super().parameters(), "router_bias": torch.zeros(self.recipe.experts)}

    def choose(self, x_ND: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """Return the weights of each token's `top_k` experts, and these experts, [N, k] each; of equal ones the lowest goes first."""
        scores_NE = torch.sigmoid(x_ND.float() @ weights["router"].t())
        experts_NK = first_largest(scores_NE.detach() + weights["router_bias"], self.recipe.top_k)
        chosen_NK = scores_NE.gather(1, experts_NK)
        return ROUTED_SCALE * chosen_NK / (chosen_NK.sum(1, keepdim=True) + FLOOR), experts_NK

    @torch.no_grad()
    def balance(self, own: Weights, usage_E: Tensor) -> None:
        """Move the bias by one step towards equal load; `usage_E` is each expert's share of the slots of a training step."""
        own["router_bias"].add_(BALANCE_STEP * torch.sign(usage_E.mean() - usage_E))
