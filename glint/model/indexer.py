"""The indexer of sparse attention (DeepSeek-AI, 2025: DeepSeek-V3.2), on pools of neighbouring tokens as GLM has it.

Tokens pP .. pP+P-1 are pool p. A pool that is complete has one key, a mean of its tokens' keys with learned weights a channel, and a
token t scores it I = sum_h w_h(t) relu(q_h(t) . key d^-0.5). The attention above sees the tokens of the pools with the highest scores.
A choice has no gradient, so the indexer learns from a loss of its own: the divergence of softmax(I) from where the attention's
probability went. The indexer reads detached inputs; its loss trains nothing else. Scores are float32.

Beside the package's legend: B rows of one span, G pools, P tokens of a pool, I index heads, J index size (d), X = 2 J.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, pad

from glint.config.model import ModelRecipe
from glint.model.mechanism import Parameters, Starts, Weights
from glint.model.ranking import first_largest

KEY_EPSILON = 1e-6


@dataclass(frozen=True)
class Indexed:
    """What the indexer makes of packed tokens, float32."""

    queries_NIJ: Tensor
    weights_NI: Tensor
    members_NX: Tensor
    """A token's key and the logits of its weight in its pool: what a pool that is not complete must keep of its tokens."""


STARTS: Starts = {"slot_bias": lambda bias, _: bias.zero_()}


class Indexer:
    """Queries of several heads from the attention's query latent, one key a token for all heads, and the pools' slots."""

    starts = STARTS

    def __init__(self, recipe: ModelRecipe) -> None:
        self.heads, self.size, self.pool = recipe.index_heads, recipe.index_size, recipe.pool
        self.width, self.query_rank = recipe.width, recipe.query_rank

    def parameters(self) -> Parameters:
        """Return the maps to queries, keys, heads' weights and slots' weights; a slot's bias [P, J] starts at 0."""
        size, width = self.size, self.width
        shapes = {"index_query": (self.heads * size, self.query_rank), "index_key": (size, width), "index_weight": (self.heads, width)}
        shapes |= {"slot_gate": (size, width), "slot_bias": (self.pool, size)}
        vectors = {"index_key_norm": nn.Parameter(torch.ones(size)), "index_key_bias": nn.Parameter(torch.zeros(size))}
        return {name: nn.Parameter(torch.empty(shape)) for name, shape in shapes.items()} | vectors

    def read(self, x_ND: Tensor, query_latent_NR: Tensor, weights: Weights) -> Indexed:
        """Return what scores and pools are made of, without a gradient for the inputs."""
        x_ND, latent_NR = x_ND.detach().float(), query_latent_NR.detach().float()
        norm = (weights["index_key_norm"], weights["index_key_bias"])
        key_NJ = layer_norm(x_ND @ weights["index_key"].t(), (self.size,), *norm, KEY_EPSILON)
        queries_NIJ = (latent_NR @ weights["index_query"].t()).unflatten(1, (self.heads, self.size))
        weights_NI = x_ND @ weights["index_weight"].t() * self.heads**-0.5
        return Indexed(queries_NIJ, weights_NI, torch.cat([key_NJ, x_ND @ weights["slot_gate"].t()], 1))

    def pooled(self, members_BTX: Tensor, slot_bias_PJ: Tensor) -> Tensor:
        """Return the keys of the complete pools of rows that begin at a pool's start, [B, T // P, J]."""
        complete = members_BTX.shape[1] // self.pool
        members_BGPX = members_BTX[:, : complete * self.pool].unflatten(1, (complete, self.pool))
        key_BGPJ, gate_BGPJ = members_BGPX.chunk(2, -1)
        return (torch.softmax(gate_BGPJ + slot_bias_PJ, 2) * key_BGPJ).sum(2)

    def scores(self, queries_BTIJ: Tensor, weights_BTI: Tensor, pools_BGJ: Tensor) -> Tensor:
        """Return I [B, T, G]."""
        similar_BTIG = (queries_BTIJ.flatten(1, 2) @ pools_BGJ.transpose(1, 2) * self.size**-0.5).relu()
        return (weights_BTI[..., None, :] @ similar_BTIG.unflatten(1, queries_BTIJ.shape[1:3])).squeeze(-2)


def complete_pools(positions: Tensor, pools: int, pool: int) -> Tensor:
    """Return whether a pool's last token is not behind a position, [..., G]."""
    return torch.arange(pools, device=positions.device) < (positions[..., None] + 1) // pool


def choose(scores_BTG: Tensor, candidates: Tensor, count: int) -> Tensor:
    """Return the `count` candidates of the highest score as a mask [B, T, G]; of equal scores the lowest pool goes first."""
    best = first_largest(scores_BTG.detach().masked_fill(~candidates, float("-inf")), count)
    return torch.zeros_like(scores_BTG, dtype=torch.bool).scatter_(-1, best, True) & candidates


def visible_tokens(chosen_BTG: Tensor, positions_T: Tensor, pool: int, length: int) -> Tensor:
    """Return which of `length` tokens a position sees, [B, T, S]: its chosen pools, and the incomplete pool that it stands in.

    A position that completes its pool stands in none: it sees its own pool, itself included, only if that is chosen.
    """
    tokens_S = torch.arange(length, device=positions_T.device)
    in_pools = chosen_BTG.repeat_interleave(pool, -1)
    in_pools = pad(in_pools, (0, length - in_pools.shape[-1]))
    tail_TS = (tokens_S >= (positions_T + 1)[:, None] // pool * pool) & (tokens_S <= positions_T[:, None])
    return in_pools | tail_TS


def divergence(scores_BTG: Tensor, pools_BTG: Tensor, attention_BHTS: Tensor, pool: int) -> Tensor:
    """Return KL(p || softmax(I)) over the pools `pools_BTG` (a mask) that a token attends to, [B, T]; 0 where there is none.

    p is the attention's probability, summed over the heads and over each pool's tokens and normalised over these pools; it is a target,
    so it gets no gradient. While attention is dense these are all complete pools, afterwards the chosen ones, as in DeepSeek-V3.2.
    """
    count = scores_BTG.shape[-1]
    mass_BTS = attention_BHTS.detach().sum(1)[..., : count * pool]
    mass_BTG = mass_BTS.unflatten(-1, (count, pool)).sum(-1) * pools_BTG
    target_BTG = mass_BTG / mass_BTG.sum(-1, keepdim=True).clamp(min=torch.finfo(mass_BTG.dtype).tiny)
    log_share_BTG = torch.log_softmax(scores_BTG.masked_fill(~pools_BTG, torch.finfo(scores_BTG.dtype).min), -1)
    return (torch.xlogy(target_BTG, target_BTG) - target_BTG * log_share_BTG).sum(-1)
