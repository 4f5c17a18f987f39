"""The `hybrid` decoder: one forward for training and prefill, and one incremental step with a cache.

Precision: matrix products take the compute dtype (bf16 or fp32); norms, router softmax, residual streams and logits are float32.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glint.config.model import ModelRecipe
from glint.device import compiles
from glint.model import attention
from glint.model.attention import LinearState, SparseCache
from glint.model.compiled_step import CompiledStep
from glint.model.layout import Layout, Rows
from glint.model.moe import mixture, mixture_step
from glint.model.primitives import rms_norm
from glint.model.rotary import Rotary, rotary
from glint.model.streams import StreamBank, mixing_weights, read


def is_sparse(layer: int) -> bool:
    """Return whether `layer` (from 0) attends sparsely: every fourth does."""
    return (layer + 1) % 4 == 0


MATRICES = ("qkv", "out", "router", "up", "down")
"""A block's parameters that a forward pass reads in the compute dtype alone."""


class Block(nn.Module):
    """Parameters of one layer. `up` and `down` stack the routed experts, then the shared one."""

    def __init__(self, recipe: ModelRecipe) -> None:
        super().__init__()
        width, hidden, experts = recipe.width, recipe.expert_hidden, recipe.experts
        self.read_logits = nn.Parameter(torch.linspace(0.1, -0.1, recipe.streams))
        self.write_logits = nn.Parameter(torch.linspace(-0.1, 0.1, recipe.streams))
        self.attention_norm = nn.Parameter(torch.ones(width))
        self.qkv = nn.Parameter(torch.empty(3 * width, width))
        self.out = nn.Parameter(torch.empty(width, width))
        self.ffn_norm = nn.Parameter(torch.ones(width))
        self.router = nn.Parameter(torch.empty(experts, width))
        self.up = nn.Parameter(torch.empty(experts + 1, width, 2 * hidden))
        self.down = nn.Parameter(torch.empty(experts + 1, hidden, width))

    def cast(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Return qkv, out, router, up and down in `dtype`."""
        return tuple(getattr(self, name).to(dtype) for name in MATRICES)


@dataclass(frozen=True)
class DecodingWeights:
    """What every decode step multiplies by, in the compute dtype; made when decoding begins."""

    matrices: list[tuple[Tensor, ...]]
    """qkv and out of each layer, transposed; its router, up and down."""
    mixing: list[Tensor]
    head_DV: Tensor


@dataclass
class Cache:
    """What decoding keeps of the tokens so far, a row each."""

    layers: list[LinearState | SparseCache]
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
    """Share of the routed slots that each expert got, a layer."""


class Decoder(nn.Module):
    """Byte-level decoder whose embedding and output head are one matrix."""

    def __init__(self, recipe: ModelRecipe, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.recipe = recipe
        self.dtype = dtype
        self.embedding = nn.Parameter(torch.empty(recipe.vocabulary, recipe.width))
        self.blocks = nn.ModuleList(Block(recipe) for _ in range(recipe.layers))
        self.final_norm = nn.Parameter(torch.ones(recipe.width))
        self._frozen: dict[int, tuple[Tensor, ...]] = {}

    def initialise(self, generator: torch.Generator) -> "Decoder":
        """Draw every matrix from N(0, init_std), in the order of the parameters' names, and return self."""
        for _, parameter in sorted(self.named_parameters()):
            if parameter.dim() > 1:
                with torch.no_grad():
                    parameter.copy_(torch.empty(parameter.shape).normal_(0, self.recipe.init_std, generator=generator))
        return self

    def layers(self) -> Iterator[tuple[int, Block]]:
        """Yield the blocks with their indices."""
        for index, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            yield index, block

    def freeze(self, scope: str = "none") -> "Decoder":
        """Leave only the parameters of `scope` trainable, and cast the matrices of frozen blocks once.

        `scope` is "all", "last_block" (with the final norm), "last_block_and_head" or "none". Frozen parameters
        must not be changed any more.
        """
        last = f"blocks.{self.recipe.layers - 1}."
        prefixes = {"all": ("",), "last_block": (last, "final_norm"), "last_block_and_head": (last, "final_norm", "embedding"), "none": ()}[
            scope
        ]
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.startswith(prefixes))
        self._frozen = {i: b.cast(self.dtype) for i, b in self.layers() if not any(p.requires_grad for p in b.parameters())}
        return self

    def trainable(self) -> dict[str, nn.Parameter]:
        """Return the parameters that are not frozen, by name."""
        return {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}

    def matrices(self) -> list[tuple[Tensor, ...]]:
        """Return every block's matrices in the compute dtype, with a gradient where they train."""
        return [self._frozen.get(index) or block.cast(self.dtype) for index, block in self.layers()]

    def _decoding_weights(self) -> DecodingWeights:
        matrices = [(*(x.t().contiguous() for x in own[:2]), *own[2:]) for own in self.matrices()]
        return DecodingWeights(matrices, mixing_weights(*self._mixers()), self.embedding.to(self.dtype).t().contiguous())

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
        cache: list[LinearState | SparseCache] | None = None,
    ) -> Hidden:
        """Return the hidden states of packed tokens.

        `head_only` cuts the gradient of the tied matrix through the input embedding. Where `cache` is a list,
        each layer appends its decode cache.
        """
        return self.forward_embedded(self.embed(ids_N, head_only=head_only), layout, cache=cache)

    def embed(self, ids_N: Tensor, *, head_only: bool = False) -> Tensor:
        """Return the float32 rows [N, D] of the tied matrix that stand for `ids_N`; `head_only` cuts their gradient."""
        table = self.embedding.detach() if head_only else self.embedding
        return nn.functional.embedding(ids_N, table).float()

    def forward_embedded(self, newest_ND: Tensor, layout: Layout, *, cache: list[LinearState | SparseCache] | None = None) -> Hidden:
        """Return the hidden states of packed tokens that are embedded already, in float32: rows of `embed`, or what takes their place."""
        if len(newest_ND) != layout.tokens:
            raise ValueError(f"{len(newest_ND)} tokens do not fill a layout of {layout.tokens} tokens")
        weights = mixing_weights(*self._mixers())
        rows = Rows(layout, self._rotary(layout.prompt + layout.longest))
        bank = StreamBank(newest_ND, self.recipe.layers)
        usages = []
        matrices = self.matrices()
        for index, block in self.layers():
            x_ND = read(newest_ND, weights, bank, index)
            newest_ND, usage_E = self._block(index, block, matrices[index], x_ND, rows, cache)
            usages.append(usage_E)
        mean_ND = read(newest_ND, weights, bank, self.recipe.layers)
        return Hidden(rms_norm(mean_ND, self.final_norm, self.recipe.norm_epsilon, self.dtype), torch.stack(usages))

    def _mixers(self) -> tuple[list[Tensor], list[Tensor]]:
        blocks = [block for _, block in self.layers()]
        return [block.read_logits for block in blocks], [block.write_logits for block in blocks]

    def _block(
        self,
        index: int,
        block: Block,
        matrices: tuple[Tensor, ...],
        x_ND: Tensor,
        rows: Rows,
        cache: list[LinearState | SparseCache] | None,
    ) -> tuple[Tensor, Tensor]:
        recipe = self.recipe
        qkv, out, router, up, down = matrices
        qkv_NX = rms_norm(x_ND, block.attention_norm, recipe.norm_epsilon, self.dtype) @ qkv.t()
        if is_sparse(index):
            attended = attention.sparse_attention(qkv_NX, rows, recipe.heads, recipe.window, recipe.stride, cache, recipe.context)
        else:
            attended = attention.linear_attention(qkv_NX, rows, recipe.heads, cache)
        h_ND = x_ND + attended @ out.t()
        normed_ND = rms_norm(h_ND, block.ffn_norm, recipe.norm_epsilon, self.dtype)
        return mixture(h_ND, normed_ND, normed_ND @ router.t(), up, down, recipe.top_k)

    def logits(self, final_ND: Tensor) -> Tensor:
        """Return float32 next-token logits [N, V] of normalised hidden states."""
        return (final_ND @ self.embedding.to(self.dtype).t()).float()

    @torch.no_grad()
    def prefill(self, rows: list[list[int]]) -> tuple[Tensor, Cache]:
        """Read whole prompts; return the logits after each prompt [R, V] and the cache to go on from."""
        layout = Layout(tuple(map(len, rows)))
        device = self.embedding.device
        layers: list[LinearState | SparseCache] = []
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
        if compiles(embedded_RD.device):
            cache.compiled = cache.compiled or self._compiled_step(cache, rotary)
            final_RD = cache.compiled(embedded_RD)
        else:
            final_RD = self._step(embedded_RD, cache, rotary)
        return (final_RD @ cache.weights.head_DV).float()

    def _compiled_step(self, cache: Cache, rotary: Rotary) -> CompiledStep:
        norms = [(block.attention_norm, block.ffn_norm) for _, block in self.layers()]
        weights = cache.weights
        return CompiledStep(self.recipe, rotary, cache.positions_R, cache.layers, weights.matrices, norms, weights.mixing, self.final_norm)

    def _step(self, newest_RD: Tensor, cache: Cache, rotary: Rotary) -> Tensor:
        recipe = self.recipe
        bank = StreamBank(newest_RD, recipe.layers)
        for index, block in self.layers():
            qkv, out, router, up, down = cache.weights.matrices[index]
            x_RD = read(newest_RD, cache.weights.mixing, bank, index)
            qkv_RX = rms_norm(x_RD, block.attention_norm, recipe.norm_epsilon, self.dtype) @ qkv
            h_RD = x_RD + attention.step(qkv_RX, cache.positions_R, rotary, cache.layers[index]) @ out
            normed_RD = rms_norm(h_RD, block.ffn_norm, recipe.norm_epsilon, self.dtype)
            newest_RD = mixture_step(h_RD, normed_RD, normed_RD @ router.t(), up, down, recipe.top_k)
        cache.positions_R += 1
        return rms_norm(read(newest_RD, cache.weights.mixing, bank, recipe.layers), self.final_norm, recipe.norm_epsilon, self.dtype)


def count_parameters(model: Decoder, *, active: bool = False) -> int:
    """Return the number of parameters, or of those that one token uses (its top_k routed experts instead of all)."""
    total = sum(parameter.numel() for parameter in model.parameters())
    if not active:
        return total
    recipe = model.recipe
    idle = recipe.layers * (recipe.experts - recipe.top_k) * 3 * recipe.expert_hidden * recipe.width
    return total - idle
