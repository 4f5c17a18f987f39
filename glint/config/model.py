"""The model recipe: which mechanisms the decoder is made of, and their sizes."""

from typing import Literal, Self

from pydantic import Field, model_validator

from glint.config.base import Natural, Positive, Rate, Strict, Weight

SPARSE_EVERY = 4
"""Of linear and sparse layers, every fourth is sparse."""
OPTIONAL_MODULES = {
    ("linear", "kda"): "glint.model.kda",
    ("sparse", "dense"): "glint.model.dense",
    ("sparse", "indexed"): "glint.model.indexed",
    ("residual", "mhc"): "glint.model.hyperconnections",
    ("router", "sigmoid"): "glint.model.sigmoid_moe",
    ("ffn", "dense"): "glint.model.feedforward",
}
"""Modules that only models run whose recipe names this mechanism. The decoder imports them all; what is not here, every model runs."""


class ModelRecipe(Strict):
    """Mechanisms of the decoder and their sizes; the defaults are the published `hybrid` of 25,730,592 parameters."""

    linear: Literal["elu", "kda", "none"] = "elu"
    """Linear layers, three of four. elu: phi = elu + 1; kda: Kimi Delta Attention; none: there are none, every layer is one of `sparse`."""
    sparse: Literal["strided", "indexed", "dense"] = "strided"
    """The other layers. strided: the last `window` positions and every `stride`-th; indexed: `visible` positions that an indexer chooses in
    pools, keys and values from a latent, no positions; dense: all positions, half-split RoPE."""
    residual: Literal["mixed", "mhc", "single"] = "mixed"
    """mixed: `streams` residual streams, read and written with learned weights; mhc: the same with weights by the token, and mixed with
    each other (manifold-constrained hyper-connections); single: the usual one, and `streams` is not read."""
    ffn: Literal["moe", "dense"] = "moe"
    """moe: `top_k` of `experts` and a shared expert; dense: one SwiGLU, and the keys of the experts are not read."""
    router: Literal["softmax", "sigmoid"] = "softmax"
    """How experts are weighed. softmax: over those chosen; sigmoid: each for itself, then normalised and times 2.5, balanced by a bias."""
    dense_layers: Natural = 0
    """First layers of a moe model whose feed-forward is dense all the same, of width `ffn_hidden`."""
    vocabulary: int = Field(default=260, ge=260, le=65536)
    """Token ids: pad 0, bos 1, eos 2, sep 3, then the 256 bytes."""
    width: Positive = 192
    """Width of a token's vector (D)."""
    layers: Positive = 12
    """Number of blocks."""
    heads: Positive = 6
    """Attention heads a layer."""
    experts: Positive = 8
    """Routed experts a layer."""
    top_k: Positive = 2
    """Experts a token is sent to."""
    expert_hidden: Positive = 384
    """Hidden width of an expert."""
    shared_experts: Positive = 1
    """Experts that every token passes, unscaled."""
    ffn_hidden: Positive | None = None
    """Hidden width of a dense feed-forward; none: that of the experts a token passes, together."""
    gate_limit: Rate | None = None
    """Largest gate and absolute value inside an expert or dense feed-forward, beyond which they are clamped; none: no clamp."""
    streams: Positive = 4
    """Parallel residual streams."""
    window: Positive = 32
    """Strided attention: how many recent positions a token sees, itself included."""
    stride: Positive = 32
    """Strided attention: every position divisible by this is seen as well."""
    visible: Positive = 48
    """Indexed attention: how many positions a token sees, beside the incomplete pool that it stands in."""
    pool: Positive = 4
    """Indexed attention: neighbouring positions that are chosen together."""
    query_rank: Positive = 128
    """Indexed attention: width of the latent that queries come from."""
    kv_rank: Positive = 64
    """Indexed attention: width of the latent that keys and values come from, which is all that decoding keeps of a token."""
    index_heads: Positive = 4
    """Indexed attention: heads of the indexer."""
    index_size: Positive = 32
    """Indexed attention: width of an index head."""
    context: Positive = 192
    """Longest sequence, in tokens."""
    rope_base: Rate = 10000.0
    """Base of the rotary position angles."""
    norm_epsilon: Rate = 1e-6
    """Added to the mean square in RMSNorm."""
    tied: bool = True
    """Whether the embedding and the output head are one matrix."""
    init_std: Weight = 0.02
    """Standard deviation of linear and embedding weights at the start."""

    def attention(self, layer: int) -> str:
        """Return which mechanism attends in `layer` (from 0): a value of `linear` or of `sparse`."""
        return self.sparse if self.linear == "none" or (layer + 1) % SPARSE_EVERY == 0 else self.linear

    @property
    def dense_hidden(self) -> int:
        """Hidden width of the dense feed-forward."""
        return self.ffn_hidden or (self.top_k + self.shared_experts) * self.expert_hidden

    def feed_forward(self, layer: int) -> str:
        """Return which feed-forward `layer` (from 0) has: dense, or of experts a value of `router`."""
        return "dense" if self.ffn == "dense" or layer < self.dense_layers else self.router

    @property
    def has_compiled_step(self) -> bool:
        """Whether decoding on a CPU has a compiled step: it knows the mechanisms of the `hybrid`."""
        made_of = {kind(layer) for layer in range(self.layers) for kind in (self.attention, self.feed_forward)}
        return made_of <= {"elu", "strided", "softmax"} and self.residual == "mixed" and self.gate_limit is None

    def unused_modules(self) -> frozenset[str]:
        """Return the modules of mechanisms that this model is not made of."""
        unused = {module for (key, value), module in OPTIONAL_MODULES.items() if getattr(self, key) != value}
        return frozenset(unused - ({OPTIONAL_MODULES["ffn", "dense"]} if self.dense_layers else set()))

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} must be divisible by twice the heads, 2 * {self.heads}")
        if self.ffn == "moe" and self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} exceeds the {self.experts} experts")
        if self.sparse == "strided" and self.window > self.context:
            raise ValueError(f"window {self.window} exceeds the context of {self.context}")
        if self.sparse == "indexed" and self.visible % self.pool:
            raise ValueError(f"visible {self.visible} must be divisible by the pool, {self.pool}")
        if self.shared_experts != 1:
            raise ValueError(f"shared_experts must be 1, not {self.shared_experts}")
        return self

    @model_validator(mode="after")
    def _mechanisms_mean_something(self) -> Self:
        if self.ffn == "moe" and not self.dense_layers and self.ffn_hidden is not None:
            raise ValueError(f"ffn_hidden {self.ffn_hidden} means nothing with ffn moe; set expert_hidden, dense_layers, or ffn: dense")
        if self.ffn == "dense" and self.router != "softmax":
            raise ValueError(f"router {self.router} means nothing with ffn dense")
        if self.dense_layers >= self.layers or (self.ffn == "dense" and self.dense_layers):
            raise ValueError(f"dense_layers {self.dense_layers} of {self.layers} layers leaves no layer of experts; set ffn: dense")
        if self.sparse != "strided" and self.linear != "none" and self.layers < SPARSE_EVERY:
            raise ValueError(
                f"sparse {self.sparse} means nothing in {self.layers} layers: with linear {self.linear} the first sparse layer is "
                f"the {SPARSE_EVERY}th; add layers, or set linear: none"
            )
        return self


DENSE = ModelRecipe(
    linear="none",
    sparse="dense",
    residual="single",
    ffn="dense",
    width=512,
    layers=7,
    heads=8,
    ffn_hidden=1632,
    context=256,
)
"""The Llama-style control, countable by hand: 25,026,048 parameters with 256 token ids, 25,028,096 with our 260."""
FAITHFUL = ModelRecipe(
    linear="kda",
    sparse="indexed",
    residual="mhc",
    router="sigmoid",
    dense_layers=1,
    width=256,
    heads=4,
    experts=12,
    expert_hidden=192,
    ffn_hidden=320,
    gate_limit=10.0,
    norm_epsilon=1e-5,
    tied=False,
)
"""The real mechanisms at teaching scale: three linear layers to one indexed, the first feed-forward dense."""
PRESETS: dict[str, ModelRecipe] = {"hybrid": ModelRecipe(), "faithful": FAITHFUL, "dense": DENSE}
"""Models with a name of their own."""
