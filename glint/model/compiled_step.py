"""One decode step on a CPU. What it writes is allocated once for a batch: a step's work is so small that bookkeeping would double it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glint.config.model import ModelRecipe
from glint.model import kernels
from glint.model.attention import LinearState, SparseCache
from glint.model.compiled import array
from glint.model.mechanism import Weights
from glint.model.packed import Packed
from glint.model.rotary import Rotary


@dataclass(frozen=True)
class StepLayer:
    """What a layer's steps multiply by. All experts are one matrix: many small products cost more than the experts that nobody chose."""

    attention_norm: kernels.Array
    ffn_norm: kernels.Array
    router: kernels.Array
    """[E, D], float32."""
    qkv: Packed
    out: Packed
    up: Packed
    """To the gates and values of every expert, [R, (E+1) 2F]."""
    down: Packed
    """From the weighted products of every expert, [R, (E+1) F], to their sum."""

    @classmethod
    def of(cls, weights: Weights) -> "StepLayer":
        """Take them from the weights of a block, whose matrices are cast."""
        up_EDX, down_EFD = weights["up"], weights["down"]
        return cls(
            attention_norm=array(weights["attention_norm"]),
            ffn_norm=array(weights["ffn_norm"]),
            router=array(weights["router"].float()),
            qkv=Packed(weights["qkv"]),
            out=Packed(weights["out"]),
            up=Packed(up_EDX.transpose(1, 2).flatten(0, 1)),
            down=Packed(down_EFD.flatten(0, 1).t()),
        )


class CompiledStep:
    """The layers of a decoder, ready to append one token to each of R rows."""

    def __init__(
        self,
        recipe: ModelRecipe,
        dtype: torch.dtype,
        rotary: Rotary,
        positions_R: Tensor,
        caches: Sequence[LinearState | SparseCache],
        layers: Sequence[StepLayer],
        mixing: Sequence[Tensor],
        final_norm: Tensor,
    ) -> None:
        """`mixing` is that of decoding. The caches advance in place."""
        rows, width = len(positions_R), recipe.width
        self.recipe, self.rotary, self.positions = recipe, rotary, array(positions_R)
        self.streams_LRD = torch.empty(recipe.layers + 1, rows, width)
        self.x_RD, self.h_RD = torch.empty(rows, width), torch.empty(rows, width)
        self.normed_RD, self.attended_RD = (torch.empty(rows, width, dtype=dtype) for _ in range(2))
        self.logits_RE = torch.empty(rows, recipe.experts, dtype=dtype)
        self.product_REF = torch.empty(rows, recipe.experts + 1, recipe.expert_hidden, dtype=dtype)
        self.experts_RJ, self.weights_RJ = torch.empty(rows, recipe.top_k, dtype=torch.int64), torch.empty(rows, recipe.top_k)
        self.total_RH = torch.empty(rows, recipe.heads)
        self.streams, self.x, self.normed = array(self.streams_LRD), array(self.x_RD), array(self.normed_RD)
        self.layers = [
            self._layer(level, cache, layer, array(weights))
            for level, (cache, layer, weights) in enumerate(zip(caches, layers, mixing[:-1], strict=True))
        ]
        self.final = (array(mixing[-1]), array(final_norm), recipe.norm_epsilon)

    def _layer(self, level: int, cache: LinearState | SparseCache, layer: StepLayer, weights: kernels.Array) -> Callable[[], None]:
        epsilon, h = self.recipe.norm_epsilon, array(self.h_RD)
        attend, mix = self._attention(cache), self._mixture(layer)

        def run() -> None:
            kernels.read_and_norm(self.streams, weights, layer.attention_norm, epsilon, self.x, self.normed)
            attend(layer.qkv(self.normed_RD))
            change_RD = layer.out(self.attended_RD)
            kernels.add_and_norm(self.x, array(change_RD), layer.ffn_norm, epsilon, h, self.normed)
            kernels.add(h, array(mix()), self.streams[level + 1])

        return run

    def _mixture(self, layer: StepLayer) -> Callable[[], Tensor]:
        """Return what gives the change by the mixture."""
        logits, experts, weights = (array(tensor) for tensor in (self.logits_RE, self.experts_RJ, self.weights_RJ))
        product_RX, product, shape = self.product_REF.flatten(1), array(self.product_REF), self.product_REF.shape

        def run() -> Tensor:
            kernels.route(self.normed, layer.router, logits, experts, weights)
            gate_value = array(layer.up(self.normed_RD)).reshape(*shape[:2], -1)
            kernels.gate_chosen(experts, weights, gate_value, product)
            return layer.down(product_RX)

        return run

    def _attention(self, cache: LinearState | SparseCache) -> Callable[[Tensor], None]:
        """Return what turns projections [R, 3D] into attended values."""
        heads, size = self.recipe.heads, self.recipe.width // self.recipe.heads
        attended, where = array(self.attended_RD).reshape(-1, heads, size), (self.positions, *self.rotary.turns)

        def split(qkv_RX: Tensor) -> kernels.Array:
            return array(qkv_RX).reshape(-1, 3, heads, size)

        if isinstance(cache, SparseCache):
            k, v, kept = map(array, cache.tensors())
            return lambda qkv_RX: kernels.sparse_step(split(qkv_RX), *where, cache.window, cache.stride, k, v, kept, attended)
        state, total = (array(cache.s_RHKK), array(cache.z_RHK)), array(self.total_RH)
        return lambda qkv_RX: kernels.linear_step(split(qkv_RX), *where, *state, attended, total)

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
