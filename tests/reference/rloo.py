"""The RL objective in float64, sample by sample: advantages, response log-probabilities, scores, KL and loss.

It shares nothing with `glint.train`. A sample is never padded here: its row is its prompt and then its response, and the response
is every token that was sampled, the stop token included.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import torch
from torch import Tensor

Baseline = Literal["leave_one_out", "group_normalised", "group_mean", "none"]
Length = Literal["token_mean", "sum", "batch_tokens"]


@dataclass(frozen=True)
class Sample:
    """One completion of a group: the ids of its prompt and the ids that were sampled."""

    prompt: list[int]
    response: list[int]


def advantages(rewards: list[float], baseline: Baseline, ddof: int = 1, epsilon: float = 0.0) -> list[float]:
    """Compare each reward of one group with the group; `ddof` and `epsilon` belong to the standard deviation of GRPO."""
    if baseline == "none":
        return list(rewards)
    if baseline == "leave_one_out":
        others = [[reward for j, reward in enumerate(rewards) if j != i] for i in range(len(rewards))]
        return [reward - sum(rest) / len(rest) for reward, rest in zip(rewards, others, strict=True)]
    mean = sum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    if baseline == "group_mean":
        return centred
    std = sqrt(sum(c * c for c in centred) / (len(rewards) - ddof))
    return [c / (std + epsilon) for c in centred]


def response_mask(sample: Sample, padded_length: int) -> list[bool]:
    """Say for each position of the padded row whether its token was sampled."""
    start, end = len(sample.prompt), len(sample.prompt) + len(sample.response)
    return [start <= t < end for t in range(padded_length)]


def response_log_probs(logits_TV: Tensor, sample: Sample, temperature: float, never_sampled: tuple[int, ...] = ()) -> Tensor:
    """Return log p of each response token among the ids that can be sampled; the logits at t - 1 predict the token at t."""
    ids = sample.prompt + sample.response
    possible = [v for v in range(logits_TV.shape[1]) if v not in never_sampled]
    log_probs = []
    for t in range(len(sample.prompt), len(ids)):
        scaled_V = logits_TV[t - 1] / temperature
        log_probs.append(scaled_V[ids[t]] - scaled_V[possible].logsumexp(dim=0))
    return torch.stack(log_probs)


def scores(log_probs: list[Tensor], length: Length) -> list[Tensor]:
    """Turn the token log-probabilities of a group's samples into one score a sample.

    batch_tokens divides every sample's sum by the mean length of the group, so that the mean over the G samples divides the
    grand sum by the number of tokens in the group.
    """
    if length == "token_mean":
        return [sample.sum() / len(sample) for sample in log_probs]
    if length == "sum":
        return [sample.sum() for sample in log_probs]
    tokens = sum(len(sample) for sample in log_probs)
    return [sample.sum() * len(log_probs) / tokens for sample in log_probs]


def policy_loss(log_probs: list[Tensor], sample_advantages: list[float], length: Length) -> Tensor:
    """-mean over the samples of advantage times score."""
    terms = [advantage * score for advantage, score in zip(sample_advantages, scores(log_probs, length), strict=True)]
    return -torch.stack(terms).sum() / len(terms)


def kl_k3(log_probs: list[Tensor], start_log_probs: list[Tensor]) -> Tensor:
    """Mean over all response tokens of exp(r) - 1 - r, r = log p_start - log p (Schulman's k3 estimate of KL(policy, start))."""
    terms = []
    for sample, start in zip(log_probs, start_log_probs, strict=True):
        for now, before in zip(sample, start, strict=True):
            r = before - now
            terms.append(torch.exp(r) - 1 - r)
    return torch.stack(terms).sum() / len(terms)
