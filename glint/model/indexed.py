"""Sparse attention without positions: keys and values from one small latent a token (MLA), tokens chosen by the pooled indexer.

Queries, keys and values pass a low rank (DeepSeek-AI, 2024: DeepSeek-V2): qr = RMSNorm(query_down h), q = query_up qr;
c = RMSNorm(kv_down h), [k|v] = kv_up c, a head. No rotary turns: order enters through the pools and the linear layers below. The decode
cache holds c, not k and v: q . k = (q kv_up_k) . c, so that a step works on the latents, and only on those of the tokens it sees.
Matrix products take the dtype of the input; scores and probabilities are float32.

Beside the package's legend: B rows of one span, S positions from the row's start, C positions of the cache, U latent size, G pools,
P tokens of a pool, J index size, X = 2 J, M tokens that a step reads.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from glint.model.indexer import Indexed, Indexer, choose, complete_pools, divergence, visible_tokens
from glint.model.layout import Layout
from glint.model.precision import product
from glint.model.primitives import rms_norm
from glint.model.ranking import first_largest
from glint.model.spans import Span, spans

INIT_STD = 0.02
NORMS = ("query_norm", "kv_norm")


@dataclass
class IndexedCache:
    """The decode cache of a layer: a latent a token, a key a pool, and what the incomplete pool is made of."""

    latents_BCU: Tensor
    """In the compute dtype."""
    pools_BGJ: Tensor
    members_BPX: Tensor
    """Token t stands in slot t % P."""

    def select(self, rows: Tensor) -> "IndexedCache":
        """Return the cache of the rows `rows`, repeated or dropped as the index says."""
        return IndexedCache(*(x.index_select(0, rows) for x in (self.latents_BCU, self.pools_BGJ, self.members_BPX)))


class IndexedAttention(nn.Module):
    """One sparse layer: [N, D] to [N, D], for whole rows (training, prefill) and for one position at a time (decoding).

    A token sees the `visible // pool` complete pools of the highest score, and its incomplete one.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        head_size: int,
        query_rank: int,
        kv_rank: int,
        index_heads: int,
        index_size: int,
        pool: int,
        visible: int,
        norm_epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.heads, self.head_size, self.norm_epsilon = heads, head_size, norm_epsilon
        self.pool, self.chosen = pool, visible // pool
        self.query_down = nn.Parameter(torch.empty(query_rank, width))
        self.query_norm = nn.Parameter(torch.ones(query_rank))
        self.query_up = nn.Parameter(torch.empty(heads * head_size, query_rank))
        self.kv_down = nn.Parameter(torch.empty(kv_rank, width))
        self.kv_norm = nn.Parameter(torch.ones(kv_rank))
        self.kv_up = nn.Parameter(torch.empty(2 * heads * head_size, kv_rank))
        """A head's keys, then its values; heads contiguous."""
        self.out = nn.Parameter(torch.empty(width, heads * head_size))
        self.indexer = Indexer(width, query_rank, index_heads, index_size, pool)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> "IndexedAttention":
        """Draw the matrices from N(0, 0.02) and return self."""
        for name, parameter in sorted(self.named_parameters(recurse=False)):
            if name not in NORMS:
                parameter.normal_(0, INIT_STD, generator=generator)
        self.indexer.initialise(generator)
        return self

    def forward(
        self,
        h_ND: Tensor,
        layout: Layout,
        *,
        dense: bool = False,
        divergences: list[Tensor] | None = None,
        caches: list[IndexedCache] | None = None,
        longest: int = 0,
    ) -> Tensor:
        """Return the layer's output for packed normalised tokens.

        `dense` shows a token all before it (the indexer's warm-up). Where `divergences` is a list, the indexer's loss of each token [N]
        is appended to it; where `caches` is one, the cache after each row's last token, with room for `longest` positions.
        """
        latent_NU, query_latent_NU = self._latents(h_ND)
        q_NHK = product(query_latent_NU, self.query_up).unflatten(1, (self.heads, -1))
        kv_NHK = product(latent_NU, self.kv_up).unflatten(1, (self.heads, -1))
        indexed = self.indexer(h_ND, query_latent_NU)
        outputs, losses = [], []
        for span in spans(layout, h_ND.device):
            attended_NX, loss_N = self._attend(q_NHK, kv_NHK, indexed, span, dense, divergences is not None)
            outputs.append(attended_NX)
            losses.append(loss_N)
        if divergences is not None:
            divergences.append(torch.cat(losses))
        if caches is not None:
            caches.append(self._cache(span, latent_NU, indexed.members_NX, longest))
        return product(torch.cat(outputs).to(h_ND.dtype), self.out)

    def empty(self, rows: int, longest: int, like: Tensor) -> IndexedCache:
        """Return the cache of `rows` rows before their first token, in the compute dtype and on the device of `like`."""
        size = self.indexer.size
        pools, members = (like.new_zeros(rows, n, m, dtype=torch.float32) for n, m in ((longest // self.pool, size), (self.pool, 2 * size)))
        return IndexedCache(like.new_zeros(rows, longest, len(self.kv_norm)), pools, members)

    @torch.no_grad()
    def step(self, h_RD: Tensor, positions_R: Tensor, cache: IndexedCache) -> Tensor:
        """Add one position a row to `cache` in place and return its output [R, D]."""
        latent_RU, query_latent_RU = self._latents(h_RD)
        q_RHK = product(query_latent_RU, self.query_up).unflatten(1, (self.heads, -1)).float()
        indexed = self.indexer(h_RD, query_latent_RU)
        self._remember(cache, positions_R, latent_RU, indexed.members_NX)
        tokens_RM, seen_RM = self._read_list(indexed, positions_R, cache)
        latents_RMU = cache.latents_BCU.gather(1, tokens_RM[..., None].expand(-1, -1, cache.latents_BCU.shape[2])).float()
        up_k, up_v = self.kv_up.float().unflatten(0, (self.heads, 2, self.head_size)).unbind(1)
        scores_RHM = torch.einsum("rhk,hku->rhu", q_RHK, up_k) @ latents_RMU.transpose(1, 2) * self.head_size**-0.5
        shares_RHM = torch.softmax(scores_RHM.masked_fill(~seen_RM[:, None], float("-inf")), -1)
        attended_RHK = torch.einsum("rhu,hku->rhk", shares_RHM @ latents_RMU, up_v)
        return product(attended_RHK.flatten(1).to(h_RD.dtype), self.out)

    def _latents(self, h_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Return the normalised latents of keys and values, and of queries."""
        pairs = ((self.kv_down, self.kv_norm), (self.query_down, self.query_norm))
        latent, query_latent = (rms_norm(product(h_ND, down).float(), norm, self.norm_epsilon, h_ND.dtype) for down, norm in pairs)
        return latent, query_latent

    def _attend(self, q_NHK: Tensor, kv_NHK: Tensor, indexed: Indexed, span: Span, dense: bool, wants_loss: bool) -> tuple[Tensor, Tensor]:
        """Return the attended values [n, H K] of the span's n tokens, and the indexer's loss of each (empty where it is not wanted)."""
        q = span.pad(q_NHK).transpose(1, 2).float()
        k, v = span.whole(kv_NHK).transpose(1, 2).float().chunk(2, -1)
        scores_BTG = self.indexer.scores(
            span.pad(indexed.queries_NIJ), span.pad(indexed.weights_NI), self.indexer.pooled(span.whole(indexed.members_NX))
        )
        positions_T = torch.arange(span.start, span.start + q.shape[2], device=q.device)
        pools = complete_pools(positions_T, scores_BTG.shape[-1], self.pool).expand_as(scores_BTG)
        if not dense:
            pools = choose(scores_BTG, pools, self.chosen)
        seen = visible_tokens(pools, positions_T, self.pool, k.shape[2])[:, None]
        if not wants_loss:
            return span.unpad(scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)), q.new_empty(0)
        shares = torch.softmax((q * self.head_size**-0.5 @ k.transpose(2, 3)).masked_fill(~seen, float("-inf")), -1)
        loss_BT = divergence(scores_BTG, pools, shares, self.pool)
        return span.unpad((shares @ v).transpose(1, 2).flatten(2)), span.unpad(loss_BT)

    def _cache(self, span: Span, latent_NU: Tensor, members_NX: Tensor, longest: int) -> IndexedCache:
        """Return the cache after each row; what it holds of positions behind a row's end is never seen, and overwritten by steps."""
        latents, members = span.whole(latent_NU), span.whole(members_NX)
        cache = self.empty(span.rows, longest, latent_NU)
        pools = self.indexer.pooled(members)
        cache.latents_BCU[:, : latents.shape[1]] = latents
        cache.pools_BGJ[:, : pools.shape[1]] = pools
        ends_B = span.start + span.indices.real_RT.sum(1)
        last_BP = (ends_B // self.pool * self.pool)[:, None] + torch.arange(self.pool, device=ends_B.device)
        last_BP = last_BP.clamp(max=members.shape[1] - 1)
        cache.members_BPX.copy_(members.gather(1, last_BP[..., None].expand(-1, -1, members.shape[2])))
        return cache

    def _remember(self, cache: IndexedCache, positions_R: Tensor, latent_RU: Tensor, members_RX: Tensor) -> None:
        rows = torch.arange(len(positions_R), device=positions_R.device)
        cache.latents_BCU[rows, positions_R] = latent_RU
        cache.members_BPX[rows, positions_R % self.pool] = members_RX
        completing = ((positions_R + 1) % self.pool == 0).nonzero().squeeze(1)
        cache.pools_BGJ[completing, positions_R[completing] // self.pool] = self.indexer.pooled(cache.members_BPX[completing]).squeeze(1)

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
