"""Sparse attention without positions: keys and values from one small latent a token (MLA), tokens chosen by the pooled indexer.

Queries, keys and values pass a low rank (DeepSeek-AI, 2024: DeepSeek-V2): qr = RMSNorm(query_down h), q = query_up qr;
c = RMSNorm(kv_down h), [k|v] = kv_up c, a head. No rotary turns: order enters through the pools and the linear layers below. The decode
cache holds c, not k and v: q . k = (q kv_up_k) . c, so that a step works on the latents, and only on those of the tokens it sees.
Matrix products take the dtype of the input; scores and probabilities are float32.

Beside the package's legend: B rows of one span, S positions from the row's start, C positions of the cache, U latent size, G pools,
P tokens of a pool, J index size, X = 2 J, M tokens that a step reads.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from glint.config.model import ModelRecipe
from glint.model.indexer import Indexed, Indexer, choose, complete_pools, divergence, visible_tokens
from glint.model.layout import Indexing, Rows
from glint.model.mechanism import Parameters, Starts, Weights
from glint.model.primitives import rms_norm
from glint.model.ranking import first_largest
from glint.model.rotary import Rotary
from glint.model.spans import Span, spans

GROWTH = 8
"""Pools by which a cache grows."""


@dataclass
class IndexedCache:
    """The decode cache of a layer: a latent a token, a key a pool, and what the incomplete pool is made of.

    There is room for so many tokens as there are latents; it grows a block of pools at a time.
    """

    latents_BCU: Tensor
    """In the compute dtype."""
    pools_BGJ: Tensor
    members_BPX: Tensor
    """Token t stands in slot t % P."""

    def select(self, rows: Tensor) -> "IndexedCache":
        """Return the cache of the rows `rows`, repeated or dropped as the index says."""
        return IndexedCache(*(x.index_select(0, rows) for x in (self.latents_BCU, self.pools_BGJ, self.members_BPX)))

    def hold(self, tokens: int) -> None:
        """Make room for so many tokens a row."""
        pools = -(-tokens // (GROWTH * self.members_BPX.shape[1])) * GROWTH
        missing = pools - self.pools_BGJ.shape[1]
        if missing > 0:
            self.pools_BGJ = pad(self.pools_BGJ, (0, 0, 0, missing))
            self.latents_BCU = pad(self.latents_BCU, (0, 0, 0, missing * self.members_BPX.shape[1]))


class IndexedAttention:
    """Attention on a latent a token, which sees the `visible // pool` complete pools of the highest score, and its incomplete one."""

    matrices = ("query_down", "query_up", "kv_down", "kv_up", "out")

    def __init__(self, recipe: ModelRecipe) -> None:
        self.recipe = recipe
        self.heads, self.head_size, self.norm_epsilon = recipe.heads, recipe.width // recipe.heads, recipe.norm_epsilon
        self.pool, self.chosen = recipe.pool, recipe.visible // recipe.pool
        self.indexer = Indexer(recipe)

    @property
    def starts(self) -> Starts:
        """How the indexer's parameters start."""
        return self.indexer.starts

    def parameters(self) -> Parameters:
        """Return the maps down to the latents and up to the heads, their norms, the output, and what the indexer has.

        Rows of `kv_up` [2D, U]: a head's keys, then its values; heads contiguous.
        """
        width, ranks = self.recipe.width, {"query": self.recipe.query_rank, "kv": self.recipe.kv_rank}
        shapes = {"query_up": (width, ranks["query"]), "kv_up": (2 * width, ranks["kv"]), "out": (width, width)}
        shapes |= {f"{name}_down": (rank, width) for name, rank in ranks.items()}
        norms = {f"{name}_norm": nn.Parameter(torch.ones(rank)) for name, rank in ranks.items()}
        drawn = {name: nn.Parameter(torch.empty(shape)) for name, shape in shapes.items()}
        return {**drawn, **norms, **self.indexer.parameters()}

    def decoding(self, weights: Weights) -> Weights:
        """Return `weights` with the maps from the latent to a head's keys and values as float32 tensors, [H, K, U] each."""
        up_k, up_v = weights["kv_up"].float().unflatten(0, (self.heads, 2, self.head_size)).unbind(1)
        return {**weights, "up_k": up_k.contiguous(), "up_v": up_v.contiguous()}

    def forward(self, x_ND: Tensor, weights: Weights, rows: Rows, kept: list[Any] | None) -> Tensor:
        """Return the change [N, D] of packed tokens; see `Attention`, and for the indexer's warm-up and loss `Indexing`."""
        latent_NU, query_latent_NU = self._latents(x_ND, weights)
        q_NHK = (query_latent_NU @ weights["query_up"].t()).unflatten(1, (self.heads, -1))
        kv_NHK = (latent_NU @ weights["kv_up"].t()).unflatten(1, (self.heads, -1))
        indexed = self.indexer.read(x_ND, query_latent_NU, weights)
        outputs, losses = [], []
        for span in spans(rows):
            attended_NX, loss_N = self._attend(q_NHK, kv_NHK, indexed, weights["slot_bias"], span, rows.indexing)
            outputs.append(attended_NX)
            losses.append(loss_N)
        if rows.indexing.divergences is not None:
            rows.indexing.divergences.append(torch.cat(losses))
        if kept is not None:
            kept.append(self._cache(span, latent_NU, indexed.members_NX, weights["slot_bias"]))
        return torch.cat(outputs).to(x_ND.dtype) @ weights["out"].t()

    def empty(self, rows: int, tokens: int, like: Tensor) -> IndexedCache:
        """Return the cache of `rows` rows before their first token, with room for `tokens`, on the device and in the dtype of `like`."""
        size = self.indexer.size
        pools, members = (like.new_zeros(rows, n, m, dtype=torch.float32) for n, m in ((0, size), (self.pool, 2 * size)))
        cache = IndexedCache(like.new_zeros(rows, 0, self.recipe.kv_rank), pools, members)
        cache.hold(tokens)
        return cache

    def step(self, x_RD: Tensor, weights: Weights, positions_R: Tensor, rotary: Rotary, kept: IndexedCache) -> Tensor:  # noqa: ARG002
        """Add one position a row to `kept`, in place, and return its change [R, D]."""
        latent_RU, query_latent_RU = self._latents(x_RD, weights)
        q_RHK = (query_latent_RU @ weights["query_up"].t()).unflatten(1, (self.heads, -1)).float()
        indexed = self.indexer.read(x_RD, query_latent_RU, weights)
        self._remember(kept, positions_R, latent_RU, indexed.members_NX, weights["slot_bias"])
        tokens_RM, seen_RM = self._read_list(indexed, positions_R, kept)
        latents_RMU = kept.latents_BCU.gather(1, tokens_RM[..., None].expand(-1, -1, kept.latents_BCU.shape[2])).float()
        scores_RHM = torch.einsum("rhk,hku->rhu", q_RHK, weights["up_k"]) @ latents_RMU.transpose(1, 2) * self.head_size**-0.5
        shares_RHM = torch.softmax(scores_RHM.masked_fill(~seen_RM[:, None], float("-inf")), -1)
        attended_RHK = torch.einsum("rhu,hku->rhk", shares_RHM @ latents_RMU, weights["up_v"])
        return attended_RHK.flatten(1).to(x_RD.dtype) @ weights["out"].t()

    def _latents(self, x_ND: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """Return the normalised latents of keys and values, and of queries."""
        latent, query_latent = (
            rms_norm((x_ND @ weights[f"{name}_down"].t()).float(), weights[f"{name}_norm"], self.norm_epsilon, x_ND.dtype)
            for name in ("kv", "query")
        )
        return latent, query_latent

    def _attend(
        self, q_NHK: Tensor, kv_NHK: Tensor, indexed: Indexed, slot_bias_PJ: Tensor, span: Span, indexing: Indexing
    ) -> tuple[Tensor, Tensor]:
        """Return the attended values [n, H K] of the span's n tokens, and the indexer's loss of each (empty where it is not wanted)."""
        q = span.pad(q_NHK).transpose(1, 2).float()
        k, v = span.whole(kv_NHK).transpose(1, 2).float().chunk(2, -1)
        pools_BGJ = self.indexer.pooled(span.whole(indexed.members_NX), slot_bias_PJ)
        scores_BTG = self.indexer.scores(span.pad(indexed.queries_NIJ), span.pad(indexed.weights_NI), pools_BGJ)
        positions_T = torch.arange(span.start, span.start + q.shape[2], device=q.device)
        pools = complete_pools(positions_T, scores_BTG.shape[-1], self.pool).expand_as(scores_BTG)
        if not indexing.dense:
            pools = choose(scores_BTG, pools, self.chosen)
        seen = visible_tokens(pools, positions_T, self.pool, k.shape[2])[:, None]
        if indexing.divergences is None:
            return span.unpad(scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)), q.new_empty(0)
        shares = torch.softmax((q * self.head_size**-0.5 @ k.transpose(2, 3)).masked_fill(~seen, float("-inf")), -1)
        loss_BT = divergence(scores_BTG, pools, shares, self.pool)
        return span.unpad((shares @ v).transpose(1, 2).flatten(2)), span.unpad(loss_BT)

    def _cache(self, span: Span, latent_NU: Tensor, members_NX: Tensor, slot_bias_PJ: Tensor) -> IndexedCache:
        """Return the cache after each row; what it holds of positions behind a row's end is never seen, and overwritten by steps."""
        latents, members = span.whole(latent_NU), span.whole(members_NX)
        cache = self.empty(span.rows, latents.shape[1], latent_NU)
        pools = self.indexer.pooled(members, slot_bias_PJ)
        cache.latents_BCU[:, : latents.shape[1]] = latents
        cache.pools_BGJ[:, : pools.shape[1]] = pools
        ends_B = span.start + span.indices.real_RT.sum(1)
        last_BP = (ends_B // self.pool * self.pool)[:, None] + torch.arange(self.pool, device=ends_B.device)
        last_BP = last_BP.clamp(max=members.shape[1] - 1)
        cache.members_BPX.copy_(members.gather(1, last_BP[..., None].expand(-1, -1, members.shape[2])))
        return cache

    def _remember(self, cache: IndexedCache, positions_R: Tensor, latent_RU: Tensor, members_RX: Tensor, slot_bias_PJ: Tensor) -> None:
        cache.hold(int(positions_R.max()) + 1)
        rows = torch.arange(len(positions_R), device=positions_R.device)
        cache.latents_BCU[rows, positions_R] = latent_RU
        cache.members_BPX[rows, positions_R % self.pool] = members_RX
        completing = ((positions_R + 1) % self.pool == 0).nonzero().squeeze(1)
        complete = self.indexer.pooled(cache.members_BPX[completing], slot_bias_PJ).squeeze(1)
        cache.pools_BGJ[completing, positions_R[completing] // self.pool] = complete

    def _read_list(self, indexed: Indexed, positions_R: Tensor, cache: IndexedCache) -> tuple[Tensor, Tensor]:
        """Return the tokens a step reads, [R, M], those of the chosen pools and then the tail, and which of them it sees."""
        pools = int(positions_R.max() + 1) // self.pool
        scores_RG = self.indexer.scores(indexed.queries_NIJ[:, None], indexed.weights_NI[:, None], cache.pools_BGJ[:, :pools]).squeeze(1)
        candidates_RG = complete_pools(positions_R, pools, self.pool)
        best = first_largest(scores_RG.masked_fill(~candidates_RG, float("-inf")), self.chosen)
        slots = torch.arange(self.pool, device=best.device)
        in_pools = (best[..., None] * self.pool + slots).flatten(1)
        tail = (positions_R[:, None] + 1) // self.pool * self.pool + slots[:-1]
        seen = torch.cat([candidates_RG.gather(1, best).repeat_interleave(self.pool, 1), tail <= positions_R[:, None]], 1)
        return torch.cat([in_pools, tail.minimum(positions_R[:, None])], 1), seen
