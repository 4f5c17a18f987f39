"""The policy-gradient objective: advantages of a group, scores of its samples, divergence from the start.

The published recipe is RLOO (Ahmadian et al., 2024) with scores at temperature 1 and divided by length; every switch is a config key.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from glint.config.rl import RLRecipe
from glint.generate import mask_control


def advantages(rewards_G: Tensor, recipe: RLRecipe) -> Tensor:
    """Return the advantage [G] of each sample over its group.

    leave_one_out: r_i - mean of the others (RLOO); group_normalised: (r_i - mean) / (std + epsilon) (GRPO, Shao et al., 2024);
    group_mean: r_i - mean; none: r_i.
    """
    if recipe.baseline == "none":
        return rewards_G
    centred_G = rewards_G - rewards_G.mean()
    if recipe.baseline == "group_mean":
        return centred_G
    if recipe.baseline == "leave_one_out":
        return centred_G * (len(rewards_G) / (len(rewards_G) - 1))
    return centred_G / (rewards_G.std(correction=recipe.std_ddof) + recipe.std_epsilon)


def token_log_probs(logits_NV: Tensor, ids_N: Tensor, recipe: RLRecipe) -> Tensor:
    """Return log p [N] of the sampled ids; `logits_NV` are those that predict them.

    At log_prob_temperature `one` the full softmax is scored (published); at `sampling` the distribution that was sampled from:
    colder, and without the control ids that are never sampled.
    """
    if recipe.log_prob_temperature == "sampling":
        logits_NV = mask_control(logits_NV) / recipe.temperature
    return torch.log_softmax(logits_NV, -1).gather(1, ids_N[:, None]).squeeze(1)


def scores(log_probs_N: Tensor, lengths: Sequence[int], rule: str) -> Tensor:
    """Return the score [G] of each sample from the log-probabilities of its tokens, packed one sample after another.

    token_mean: their mean; sum: their sum; batch_tokens: their sum over the mean length of the group, so that the mean over the
    samples divides by all tokens of the group.
    """
    sums_G = torch.stack([sample.sum() for sample in torch.split(log_probs_N, list(lengths))])
    if rule == "sum":
        return sums_G
    lengths_G = torch.tensor(lengths, device=sums_G.device, dtype=sums_G.dtype)
    return sums_G / (lengths_G if rule == "token_mean" else lengths_G.mean())


def policy_loss(scores_G: Tensor, advantages_G: Tensor) -> Tensor:
    """Return -mean(advantage * score)."""
    return -(advantages_G * scores_G).mean()


def kl_k3(log_probs_N: Tensor, start_log_probs_N: Tensor) -> Tensor:
    """Return the mean over tokens of exp(r) - 1 - r, r = log p_start - log p: an unbiased, non-negative estimate of KL (Schulman, 2020)."""
    r_N = start_log_probs_N - log_probs_N
    return (torch.expm1(r_N) - r_N).mean()
