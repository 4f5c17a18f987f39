"""Mixture of experts with independent scores (DeepSeek-AI, 2024: DeepSeek-V3): a sigmoid an expert, balanced by a bias instead of a loss.

The bias joins the choice of the experts, not their weights, and learns by a rule, not by gradient: an expert with more than its share is
lowered by a fixed step, one with less is raised. Every token passes the shared expert as well, unscaled. Inside an expert gate and value
are clamped. Routing is float32; the experts' products take the dtype of the input.

`up` [E+1, D, 2F] and `down` [E+1, F, D] hold the routed experts, then the shared one; a row of `x @ up[e]` is its gates, then its values.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from glint.model.ranking import first_largest

LIMIT = 10.0
ROUTED_SCALE = 2.5
FLOOR = 1e-20
BALANCE_STEP = 1e-3
INIT_STD = 0.02


def clamped_mlp(x_ND: Tensor, up_DF: Tensor, down_FD: Tensor) -> Tensor:
    """Return down(silu(min(gate, 10)) * clamp(value, -10, 10)) [N, D]; the first half of the columns of `up` give the gate.

    Of experts stacked in front of both matrices it returns all, [E, N, D].
    """
    gate_NF, value_NF = (x_ND @ up_DF.to(x_ND.dtype)).chunk(2, -1)
    return (silu(gate_NF.clamp(max=LIMIT)) * value_NF.clamp(-LIMIT, LIMIT)) @ down_FD.to(x_ND.dtype)


class SigmoidMoE(nn.Module):
    """The feed-forward part of one layer."""

    bias: Tensor

    def __init__(self, width: int, hidden: int, experts: int, top_k: int) -> None:
        super().__init__()
        self.experts, self.top_k = experts, top_k
        self.router = nn.Parameter(torch.empty(experts, width))
        self.up = nn.Parameter(torch.empty(experts + 1, width, 2 * hidden))
        self.down = nn.Parameter(torch.empty(experts + 1, hidden, width))
        self.register_buffer("bias", torch.zeros(experts))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> "SigmoidMoE":
        """Draw the matrices from N(0, 0.02) and return self."""
        for _, parameter in sorted(self.named_parameters()):
            parameter.normal_(0, INIT_STD, generator=generator)
        return self

    def route(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights of each token's `top_k` experts, and these experts, [N, k] each; of equal ones the lowest goes first."""
        scores_NE = torch.sigmoid(x_ND.float() @ self.router.t())
        experts_NK = first_largest(scores_NE.detach() + self.bias, self.top_k)
        chosen_NK = scores_NE.gather(1, experts_NK)
        return ROUTED_SCALE * chosen_NK / (chosen_NK.sum(1, keepdim=True) + FLOOR), experts_NK

    def forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Return shared(x) + sum over the chosen of weight * expert(x), float32 [N, D], and each expert's share of the slots [E]."""
        weights_NK, experts_NK = self.route(x_ND)
        counts_E = torch.bincount(experts_NK.flatten(), minlength=self.experts)
        slots_S = experts_NK.flatten().argsort(stable=True)
        tokens_S = slots_S // self.top_k
        batches = zip(x_ND[tokens_S].split(counts_E.tolist()), self.up, self.down, strict=False)  # the shared expert is left over
        routed_SD = torch.cat([clamped_mlp(x, up, down) for x, up, down in batches if len(x)])
        weighted_SD = weights_NK.flatten()[slots_S, None] * routed_SD
        shared_ND = clamped_mlp(x_ND, self.up[-1], self.down[-1]).float()
        return shared_ND.index_add(0, tokens_S, weighted_SD), counts_E / counts_E.sum()

    @torch.no_grad()
    def balance(self, usage_E: Tensor) -> None:
        """Move the bias by one step towards equal load; `usage_E` is each expert's share of the slots of a training step."""
        self.bias += BALANCE_STEP * torch.sign(usage_E.mean() - usage_E)
