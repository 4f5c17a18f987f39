"""Mixture of experts: a router sends each token to its top k experts, and every token passes the shared expert.

The shared expert is the last entry of the stacked weights, so that one decode step is two matrix products over all experts.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import silu

from glint.model.layout import row_block
from glint.model.primitives import gated_mlp


class _Dispatch(torch.autograd.Function):
    """Copy tokens into slots sorted by expert, then once more in order for the shared expert.

    The gradient of a token is the sum over its slots.
    """

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, token_of_slot: Tensor, slot_of_choice: Tensor) -> Tensor:
        ctx.save_for_backward(slot_of_choice)
        return x_ND.index_select(0, torch.cat([token_of_slot, torch.arange(len(x_ND), device=x_ND.device)]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (slot_of_choice,) = ctx.saved_tensors
        total = grad[-len(slot_of_choice) :].clone()
        for choice in slot_of_choice.unbind(1):
            total += grad.index_select(0, choice)
        return total, None, None


class _Gather(torch.autograd.Function):
    """Return residual + shared + sum_j weight_j routed_j, float32; `y` holds the slots, then the shared expert's rows."""

    @staticmethod
    def forward(ctx: Any, residual_ND: Tensor, y: Tensor, weights_NK: Tensor, token_of_slot: Tensor, slot_of_choice: Tensor) -> Tensor:
        ctx.save_for_backward(y, weights_NK, token_of_slot, slot_of_choice)
        total = residual_ND + y[len(token_of_slot) :]
        for weight, slots in zip(weights_NK.unbind(1), slot_of_choice.unbind(1), strict=True):
            total.addcmul_(y.index_select(0, slots).float(), weight[:, None])
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor | None, ...]:
        y, weights_NK, token_of_slot, slot_of_choice = ctx.saved_tensors
        slots = len(token_of_slot)
        weight_of_slot = y.new_zeros(slots).index_copy_(0, slot_of_choice.flatten(), weights_NK.flatten().to(y.dtype))
        grad_y = torch.empty_like(y)
        grad_y[slots:] = grad_ND
        torch.index_select(grad_y[slots:], 0, token_of_slot, out=grad_y[:slots])
        per_slot = torch.linalg.vecdot(grad_y[:slots], y[:slots]).float()
        grad_weights = per_slot.index_select(0, slot_of_choice.flatten()).view_as(weights_NK)
        grad_y[:slots].mul_(weight_of_slot[:, None])
        return grad_ND, grad_y, grad_weights, None, None


def route(logits_NE: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Return the softmax over the `top_k` largest logits of each token, and their experts, [N, k] each."""
    chosen, experts = logits_NE.topk(top_k, dim=-1)
    return torch.softmax(chosen, -1), experts


def balance_loss(usage_LE: Tensor) -> Tensor:
    """Return E * mean_e((mean_layers usage_e - 1/E)^2), 0 where every expert gets its share."""
    experts = usage_LE.shape[1]
    return experts * (usage_LE.mean(0) - 1 / experts).square().mean()


def _sorted_slots(experts_NK: Tensor, counts_E: Tensor, padded_E: Tensor) -> Tensor:
    """Return the slot of every choice [N, k]: slots are sorted by expert, and expert e owns padded_E[e] of them, the last ones idle."""
    order = torch.argsort(experts_NK.flatten(), stable=True)
    idle_before_E = torch.cumsum(padded_E - counts_E, 0) - (padded_E - counts_E)
    slots = torch.arange(len(order), device=order.device) + torch.repeat_interleave(idle_before_E, counts_E)
    return torch.empty_like(order).scatter_(0, order, slots).view_as(experts_NK)


def mixture(residual_ND: Tensor, x_ND: Tensor, logits_NE: Tensor, up: Tensor, down: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Return residual + shared(x) + sum over the chosen experts of weight * expert(x), and the share of routed slots an expert got [E].

    `up` [E+1, 2, F, D] and `down` [E+1, F, D] hold the routed experts, then the shared one; `logits_NE` are float32.
    """
    weights_NK, experts_NK = route(logits_NE, top_k)
    counts_E = torch.bincount(experts_NK.flatten(), minlength=logits_NE.shape[1])
    block = row_block(x_ND.dtype)
    padded_E = (counts_E + block - 1) // block * block
    slot_of_choice = _sorted_slots(experts_NK, counts_E, padded_E)
    token_of_slot = slot_of_choice.new_zeros(int(padded_E.sum()))
    token_of_slot[slot_of_choice] = torch.arange(len(x_ND), device=x_ND.device)[:, None]
    y = gated_mlp(_Dispatch.apply(x_ND, token_of_slot, slot_of_choice), up, down, [*padded_E.tolist(), len(x_ND)])
    total = _Gather.apply(residual_ND, y, weights_NK, token_of_slot, slot_of_choice)
    return total, counts_E / counts_E.sum()


def mixture_step(residual_RD: Tensor, x_RD: Tensor, logits_RE: Tensor, up: Tensor, down: Tensor, top_k: int) -> Tensor:
    """Return what `mixture` returns for a few rows: all experts at once, those not chosen at weight 0, since down is linear."""
    weights_RK, experts_RK = route(logits_RE, top_k)
    share_RE = torch.zeros_like(logits_RE).scatter_(1, experts_RK, weights_RK)
    share_RE = torch.cat([share_RE, share_RE.new_ones(len(share_RE), 1)], 1).to(x_RD.dtype)
    gate_value = torch.mm(x_RD, up.flatten(0, 2).t()).view(len(x_RD), *up.shape[:3])
    product_REF = silu(gate_value[:, :, 0]) * gate_value[:, :, 1] * share_RE[:, :, None]
    return residual_RD + torch.mm(product_REF.flatten(1), down.flatten(0, 1))
