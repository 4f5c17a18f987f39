"""The decoder: the recipe's mechanisms, assembled. One forward for training and prefill, and one incremental step with a cache.

Precision: matrix products take the compute dtype (bf16 or fp32); norms, router softmax, residual streams and logits are float32.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glint.config.model import ModelRecipe
from glint.device import compiles
from glint.model.attention import EluAttention, StridedAttention
from glint.model.compiled_step import CompiledStep, StepLayer
from glint.model.dense import DenseAttention
from glint.model.feedforward import DenseFeedForward
from glint.model.hyperconnections import HyperStreams
from glint.model.indexed import IndexedAttention
from glint.model.kda import KimiDeltaAttention
from glint.model.layout import AS_DECODED, Indexing, Layout, Rows
from glint.model.mechanism import Attention, FeedForward, Residual, Stream, Weights
from glint.model.moe import Mixture
from glint.model.primitives import rms_norm
from glint.model.rotary import Rotary, rotary
from glint.model.sigmoid_moe import SigmoidMixture
from glint.model.streams import MixedStreams, SingleStream

ATTENTION: dict[str, Callable[[ModelRecipe], Attention]] = {
    "elu": EluAttention,
    "kda": KimiDeltaAttention,
    "strided": StridedAttention,
    "indexed": IndexedAttention,
    "dense": DenseAttention,
}
FEED_FORWARD: dict[str, Callable[[ModelRecipe], FeedForward]] = {"softmax": Mixture, "sigmoid": SigmoidMixture, "dense": DenseFeedForward}
RESIDUAL: dict[str, Callable[[ModelRecipe], Residual]] = {"mixed": MixedStreams, "mhc": HyperStreams, "single": SingleStream}


class Block(nn.Module):
    """Parameters of one layer: those of its mechanisms, under their names, and two norms."""

    def __init__(self, recipe: ModelRecipe, layer: int) -> None:
        super().__init__()
        self.attention = ATTENTION[recipe.attention(layer)](recipe)
        self.feed_forward = FEED_FORWARD[recipe.feed_forward(layer)](recipe)
        self.matrices = (*self.attention.matrices, *self.feed_forward.matrices)
        self.starts = {**self.attention.starts, **self.feed_forward.starts}
        tensors = {
            **RESIDUAL[recipe.residual](recipe).parameters(),
            "attention_norm": nn.Parameter(torch.ones(recipe.width)),
            **self.attention.parameters(),
            "ffn_norm": nn.Parameter(torch.ones(recipe.width)),
            **self.feed_forward.parameters(),
        }
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)

    def tensors(self) -> Weights:
        """Return parameters and buffers by name."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def cast(self, dtype: torch.dtype) -> Weights:
        """Return the tensors by name, the matrices in `dtype`."""
        return {name: own.to(dtype) if name in self.matrices else own for name, own in self.tensors().items()}

    def decoding(self, weights: Weights) -> Weights:
        """Return cast `weights` in the form that decode steps take."""
        return self.feed_forward.decoding(self.attention.decoding(weights))


@dataclass(frozen=True)
class DecodingWeights:
    """What every decode step multiplies by, in the compute dtype; made when decoding begins."""

    layers: list[Weights]
    compiled: list[StepLayer]
    """The layers of `CompiledStep` where it serves, and then no `layers`."""
    mixing: list[Tensor]
    head_DV: Tensor


@dataclass
class Cache:
    """What decoding keeps of the tokens so far, a row each."""

    layers: list[Any]
    """What each layer's attention keeps."""
    positions_R: Tensor
    """Position of the next token."""
    weights: DecodingWeights
    compiled: CompiledStep | None = None
    """The step of this batch, once there was one, where steps are compiled."""

    def select(self, rows: Tensor) -> "Cache":
        """Return the cache of the rows `rows`, repeated or dropped as the index says."""
        return Cache([layer.select(rows) for layer in self.layers], self.positions_R.index_select(0, rows), self.weights)


@dataclass(frozen=True)
class Hidden:
    """Result of a forward pass."""

    final_ND: Tensor
    """Normalised final hidden states, ready for the head."""
    usage_LE: Tensor
    """Share of the routed slots that each expert got, a layer that routes."""
    divergence: Tensor
    """What the indexers have to learn: their losses summed over the layers, the mean over the tokens; 0 where it was not asked for."""


class Decoder(nn.Module):
    """Byte-level decoder; where the recipe ties them, embedding and output head are one matrix."""

    def __init__(self, recipe: ModelRecipe, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.recipe = recipe
        self.dtype = dtype
        self.embedding = nn.Parameter(torch.empty(recipe.vocabulary, recipe.width))
        self.blocks = nn.ModuleList(Block(recipe, layer) for layer in range(recipe.layers))
        self.final_norm = nn.Parameter(torch.ones(recipe.width))
        if not recipe.tied:
            self.head = nn.Parameter(torch.empty(recipe.vocabulary, recipe.width))
        self.residual = RESIDUAL[recipe.residual](recipe)
        self._frozen: dict[int, Weights] = {}
        self._frozen_steps: dict[int, StepLayer] = {}

    def initialise(self, generator: torch.Generator) -> "Decoder":
        """Draw every matrix from N(0, init_std), in the order of the parameters' names, or as its mechanism says; return self."""
        starts = {f"blocks.{index}.{name}": start for index, block in self.layers() for name, start in block.starts.items()}
        with torch.no_grad():
            for name, parameter in sorted(self.named_parameters()):
                drawn = torch.empty(parameter.shape)
                if name in starts:
                    starts[name](drawn, generator)
                    parameter.copy_(drawn)
                elif parameter.dim() > 1:
                    parameter.copy_(drawn.normal_(0, self.recipe.init_std, generator=generator))
        return self

    def layers(self) -> Iterator[tuple[int, Block]]:
        """Yield the blocks with their indices."""
        for index, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            yield index, block

    @property
    def head_name(self) -> str:
        """Name of the matrix that gives the logits."""
        return "embedding" if self.recipe.tied else "head"

    @property
    def matrix_names(self) -> frozenset[str]:
        """Names of the parameters that are read in the compute dtype alone."""
        return frozenset(f"blocks.{index}.{name}" for index, block in self.layers() for name in block.matrices)

    def freeze(self, scope: str = "none") -> "Decoder":
        """Leave only the parameters of `scope` trainable, and cast the matrices of frozen blocks once.

        `scope` is "all", "last_block" (with the final norm), "last_block_and_head" or "none". Frozen parameters
        must not be changed any more.
        """
        end = (f"blocks.{self.recipe.layers - 1}.", "final_norm")
        prefixes = {"all": ("",), "last_block": end, "last_block_and_head": (*end, self.head_name), "none": ()}[scope]
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.startswith(prefixes))
        self._frozen_steps = {}
        self._frozen = {i: b.cast(self.dtype) for i, b in self.layers() if not any(p.requires_grad for p in b.parameters())}
        return self

    def trainable(self) -> dict[str, nn.Parameter]:
        """Return the parameters that are not frozen, by name."""
        return {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}

    def weights(self) -> list[Weights]:
        """Return every block's parameters, the matrices in the compute dtype, with a gradient where they train."""
        return [self._frozen.get(index) or block.cast(self.dtype) for index, block in self.layers()]

    def _decoding_weights(self) -> DecodingWeights:
        layers: list[Weights] = []
        compiled: list[StepLayer] = []
        if compiles(self.embedding.device) and self.recipe.has_compiled_step:
            compiled = [self._step_layer(index, own) for index, own in enumerate(self.weights())]
        else:
            layers = [block.decoding(own) for (_, block), own in zip(self.layers(), self.weights(), strict=True)]
        return DecodingWeights(layers, compiled, self.residual.mixing(list(self.blocks)), self._head().t().contiguous())

    def _step_layer(self, index: int, own: Weights) -> StepLayer:
        """Return what steps of a layer multiply by; of a frozen layer it is made once."""
        if index not in self._frozen:
            return StepLayer.of(own)
        if index not in self._frozen_steps:
            self._frozen_steps[index] = StepLayer.of(own)
        return self._frozen_steps[index]

    def _head(self) -> Tensor:
        return self.get_parameter(self.head_name).to(self.dtype)

    def _norm(self, x_ND: Tensor, weight_D: Tensor) -> Tensor:
        return rms_norm(x_ND, weight_D, self.recipe.norm_epsilon, self.dtype)

    def _rotary(self, longest: int) -> Rotary:
        recipe = self.recipe
        if longest > recipe.context:
            raise ValueError(f"a sequence of {longest} tokens exceeds the model's context of {recipe.context}")
        return rotary(recipe.context, recipe.width // recipe.heads, recipe.rope_base, self.embedding.device)

    def forward(
        self,
        ids_N: Tensor,
        layout: Layout,
        *,
        head_only: bool = False,
        cache: list[Any] | None = None,
        indexing: Indexing = AS_DECODED,
    ) -> Hidden:
        """Return the hidden states of packed tokens.

        `head_only` cuts the gradient of the tied matrix through the input embedding. Where `cache` is a list,
        each layer appends its decode cache.
        """
        return self.forward_embedded(self.embed(ids_N, head_only=head_only), layout, cache=cache, indexing=indexing)

    def embed(self, ids_N: Tensor, *, head_only: bool = False) -> Tensor:
        """Return the float32 rows [N, D] of the embedding that stand for `ids_N`; `head_only` cuts their gradient."""
        table = self.embedding.detach() if head_only else self.embedding
        return nn.functional.embedding(ids_N, table).float()

    def forward_embedded(
        self, embedded_ND: Tensor, layout: Layout, *, cache: list[Any] | None = None, indexing: Indexing = AS_DECODED
    ) -> Hidden:
        """Return the hidden states of packed tokens that are embedded already, in float32: rows of `embed`, or what takes their place."""
        if len(embedded_ND) != layout.tokens:
            raise ValueError(f"{len(embedded_ND)} tokens do not fill a layout of {layout.tokens} tokens")
        mixing = self.residual.mixing(list(self.blocks))
        rows = Rows(layout, self._rotary(layout.prompt + layout.longest), indexing)
        stream = self.residual.begin(embedded_ND, mixing)
        usages = [
            self._layer(index, block, own, stream, rows, cache) for (index, block), own in zip(self.layers(), self.weights(), strict=True)
        ]
        routed = [usage_E for usage_E in usages if usage_E is not None]
        usage_LE = torch.stack(routed) if routed else self.final_norm.new_zeros(0, 0)
        losses = indexing.divergences or [embedded_ND.new_zeros(1)]
        return Hidden(self._norm(stream.end(), self.final_norm), usage_LE, torch.stack(losses).sum(0).mean())

    def _layer(self, index: int, block: Block, own: Weights, stream: Stream, rows: Rows, cache: list[Any] | None) -> Tensor | None:
        x_ND = stream.before_attention(index)
        change_ND = block.attention.forward(self._norm(x_ND, own["attention_norm"]), own, rows, cache)
        h_ND, residual_ND = stream.after_attention(index, change_ND)
        total_ND, usage_E = block.feed_forward.forward(residual_ND, self._norm(h_ND, own["ffn_norm"]), own)
        stream.after_feed_forward(index, total_ND)
        return usage_E

    def balance(self, usage_LE: Tensor) -> None:
        """Change, after a training step, what balances the experts by a rule; `usage_LE` are the shares of that step's forward pass."""
        routing = [block for index, block in self.layers() if self.recipe.feed_forward(index) != "dense"]
        for block, usage_E in zip(routing, usage_LE, strict=True):
            block.feed_forward.balance(block.tensors(), usage_E)

    def logits(self, final_ND: Tensor) -> Tensor:
        """Return float32 next-token logits [N, V] of normalised hidden states."""
        return (final_ND @ self._head().t()).float()

    @torch.no_grad()
    def prefill(self, rows: list[list[int]]) -> tuple[Tensor, Cache]:
        """Read whole prompts; return the logits after each prompt [R, V] and the cache to go on from."""
        layout = Layout(tuple(map(len, rows)))
        device = self.embedding.device
        layers: list[Any] = []
        hidden = self(torch.tensor([token for row in rows for token in row], device=device), layout, cache=layers)
        cache = Cache(layers, torch.tensor(layout.lengths, device=device), self._decoding_weights())
        return self.logits(hidden.final_ND[layout.last_tokens]), cache

    @torch.no_grad()
    def step(self, ids_R: Tensor, cache: Cache) -> Tensor:
        """Append one token a row to `cache`, in place, and return the logits after it [R, V]."""
        if len(ids_R) != len(cache.positions_R):
            raise ValueError(f"{len(ids_R)} ids do not continue the {len(cache.positions_R)} rows of the cache")
        rotary = self._rotary(int(cache.positions_R.max()) + 1)
        embedded_RD = self.embedding[ids_R]
        if cache.weights.compiled:
            cache.compiled = cache.compiled or self._compiled_step(cache, rotary)
            final_RD = cache.compiled(embedded_RD)
        else:
            final_RD = self._step(embedded_RD, cache, rotary)
        return (final_RD @ cache.weights.head_DV).float()

    def _compiled_step(self, cache: Cache, rotary: Rotary) -> CompiledStep:
        own = cache.weights
        return CompiledStep(self.recipe, self.dtype, rotary, cache.positions_R, cache.layers, own.compiled, own.mixing, self.final_norm)

    def _step(self, embedded_RD: Tensor, cache: Cache, rotary: Rotary) -> Tensor:
        stream = self.residual.begin(embedded_RD, cache.weights.mixing)
        for (index, block), own, kept in zip(self.layers(), cache.weights.layers, cache.layers, strict=True):
            normed_RD = self._norm(stream.before_attention(index), own["attention_norm"])
            h_RD, residual_RD = stream.after_attention(index, block.attention.step(normed_RD, own, cache.positions_R, rotary, kept))
            stream.after_feed_forward(index, block.feed_forward.step(residual_RD, self._norm(h_RD, own["ffn_norm"]), own))
        cache.positions_R += 1
        return self._norm(stream.end(), self.final_norm)


def count_parameters(model: Decoder, *, active: bool = False) -> int:
    """Return the number of parameters, or of those that one token uses (its top_k routed experts instead of all)."""
    total = sum(parameter.numel() for parameter in model.parameters())
    return total - sum(block.feed_forward.idle_parameters for _, block in model.layers()) if active else total
