"""One decode step on a CPU. What it writes is allocated once for a batch: a step's work is so small that bookkeeping would double it."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from glint.config.model import ModelRecipe
from glint.model import kernels
from glint.model.attention import LinearState, SparseCache
from glint.model.compiled import array
from glint.model.rotary import Rotary


class CompiledStep:
    """The layers of a decoder, ready to append one token to each of R rows."""

    def __init__(
        self,
        recipe: ModelRecipe,
        rotary: Rotary,
        positions_R: Tensor,
        caches: Sequence[LinearState | SparseCache],
        matrices: Sequence[tuple[Tensor, ...]],
        norms: Sequence[tuple[Tensor, Tensor]],
        mixing: Sequence[Tensor],
        final_norm: Tensor,
    ) -> None:
        """`norms` are each layer's two; `matrices` and `mixing` those of decoding. The caches advance in place."""
        rows, width, dtype = len(positions_R), recipe.width, matrices[0][0].dtype
        self.recipe, self.rotary, self.positions = recipe, rotary, array(positions_R)
        self.streams_LRD = torch.empty(recipe.layers + 1, rows, width)
        self.x_RD, self.h_RD = torch.empty(rows, width), torch.empty(rows, width)
        self.normed_RD, self.change_RD, self.attended_RD = (torch.empty(rows, width, dtype=dtype) for _ in range(3))
        self.qkv_RX = torch.empty(rows, 3 * width, dtype=dtype)
        self.logits_RE = torch.empty(rows, recipe.experts, dtype=dtype)
        experts, hidden = recipe.experts + 1, recipe.expert_hidden
        self.gate_value_ERF = torch.empty(experts, rows, 2 * hidden, dtype=dtype)
        self.product_ERF = torch.empty(experts, rows, hidden, dtype=dtype)
        self.y_ERD = torch.empty(experts, rows, width, dtype=dtype)
        self.experts_RJ, self.weights_RJ = torch.empty(rows, recipe.top_k, dtype=torch.int64), torch.empty(rows, recipe.top_k)
        self.total_RH = torch.empty(rows, recipe.heads)
        self.streams, self.x, self.normed = array(self.streams_LRD), array(self.x_RD), array(self.normed_RD)
        self.layers = [
            self._layer(level, cache, own, own_norms, array(weights))
            for level, (cache, own, own_norms, weights) in enumerate(zip(caches, matrices, norms, mixing[:-1], strict=True))
        ]
        self.final = (array(mixing[-1]), array(final_norm), recipe.norm_epsilon)

    def _layer(
        self,
        level: int,
        cache: LinearState | SparseCache,
        matrices: tuple[Tensor, ...],
        norms: tuple[Tensor, Tensor],
        weights: kernels.Array,
    ) -> Callable[[], None]:
        recipe = self.recipe
        qkv, out, router, *experts = matrices
        attention_norm, ffn_norm = map(array, norms)
        attend, mix = self._attention(cache), self._mixture(router, *experts)
        h, change = array(self.h_RD), array(self.change_RD)

        def run() -> None:
            kernels.read_and_norm(self.streams, weights, attention_norm, recipe.norm_epsilon, self.x, self.normed)
            torch.mm(self.normed_RD, qkv, out=self.qkv_RX)
            attend()
            torch.mm(self.attended_RD, out, out=self.change_RD)
            kernels.add_and_norm(self.x, change, ffn_norm, recipe.norm_epsilon, h, self.normed)
            mix(self.streams[level + 1])

        return run

    def _mixture(self, router: Tensor, up: Tensor, down: Tensor) -> Callable[[kernels.Array], None]:
        """Return what writes h + the mixture. Rows at one place of one prompt choose alike, so only the experts in use are read."""
        ups, downs = up.unbind(0), down.unbind(0)
        gate_values, products, ys = (x.unbind(0) for x in (self.gate_value_ERF, self.product_ERF, self.y_ERD))
        gate_value, product, y, h, logits = map(array, (self.gate_value_ERF, self.product_ERF, self.y_ERD, self.h_RD, self.logits_RE))
        normed, router_ED, experts, weights = self.normed, array(router.float()), array(self.experts_RJ), array(self.weights_RJ)
        used = np.empty(len(ups), np.int64)

        def run(out: kernels.Array) -> None:
            count = kernels.route(normed, router_ED, logits, experts, weights, used)
            used[count] = len(ups) - 1  # the shared one
            for expert in used[: count + 1].tolist():
                torch.mm(self.normed_RD, ups[expert], out=gate_values[expert])
            kernels.gate_experts(used[: count + 1], gate_value, product)
            for expert in used[: count + 1].tolist():
                torch.mm(products[expert], downs[expert], out=ys[expert])
            kernels.combine_experts(h, y, experts, weights, out)

        return run

    def _attention(self, cache: LinearState | SparseCache) -> Callable[[], None]:
        heads, size = self.recipe.heads, self.recipe.width // self.recipe.heads
        qkv, attended = array(self.qkv_RX).reshape(-1, 3, heads, size), array(self.attended_RD).reshape(-1, heads, size)
        where = (qkv, self.positions, *self.rotary.turns)
        if isinstance(cache, SparseCache):
            k, v, kept = map(array, cache.tensors())
            return lambda: kernels.sparse_step(*where, cache.window, cache.stride, k, v, kept, attended)
        state, total = (array(cache.s_RHKK), array(cache.z_RHK)), array(self.total_RH)
        return lambda: kernels.linear_step(*where, *state, attended, total)

    def __deepcopy__(self, memo: dict[int, object]) -> None:
        """Return nothing: this writes into the arrays of one cache, and a copy of the cache needs a step of its own."""

    def __call__(self, embedded_RD: Tensor) -> Tensor:
        """Append the tokens whose embeddings are given; return the normalised final hidden states [R, D], valid until the next call."""
        self.streams_LRD[0] = embedded_RD
        for layer in self.layers:
            layer()
        weights, norm, epsilon = self.final
        kernels.read_and_norm(self.streams, weights, norm, epsilon, self.x, self.normed)
        self.positions += 1
        return self.normed_RD
