"""What passes through a model cost, from its recipe alone: CPU seconds on the reference machine, and memory.

A pass over tokens costs, layer by layer, matrix products (2 operations a parameter and token that a token uses), work that moves data
rather than multiplies it (microseconds a token, growing with the width), and the calls themselves. Reading weights, casting them and
stepping the optimiser cost by the parameter. The constants were fitted to the published run and the architecture study on an older
machine, those of decoding to the benchmark on the reference machine; `glint/costs.py` measures what they stand for. Of each kind of work
the rates of a machine set the scale, so what counts are their ratios.
"""

from functools import lru_cache
from typing import NamedTuple

from glint.config.model import ModelRecipe

MICROSECOND = 1e-6
MB = 2**20
PRODUCTS = {"bf16": 4.5e11, "fp32": 1.2e11}
"""Operations a second of the matrix products in a pass over many tokens."""
NARROW_PRODUCTS = {"compiled": {"bf16": 6e11, "fp32": 2.8e11}, "loop": {"bf16": 1.6e11, "fp32": 1.2e11}}
"""Operations a second when few rows are decoded, in the hybrid's compiled step and in the loop of all other models."""
WEIGHT_SECONDS = {"compiled": {"bf16": 0.06e-9, "fp32": 0.11e-9}, "loop": {"bf16": 0.22e-9, "fp32": 0.27e-9}}
"""Seconds a parameter that a decoding step reads."""
TRAINED_SECONDS = 5e-9
"""Seconds a trained parameter and optimiser step: gradient, clipping, AdamW."""
FROZEN_SECONDS = 2e-9
"""Seconds a parameter that a pass with gradients reads and does not train."""
CALL_SECONDS = 3e-3
"""Seconds a layer and training step, however few tokens there are."""
ATTENTION = {"elu": (1.0, 0.010), "strided": (1.0, 0.010), "kda": (4.0, 0.050), "indexed": (8.0, 0.050), "dense": (8.0, 0.010)}
"""Microseconds a token and layer of training beside the products: as such, and for each unit of the width."""
STREAM = {"mixed": 0.0055, "mhc": 0.020, "single": 0.0}
"""Microseconds a token, layer, stream and unit of the width."""
FEED_FORWARD = {"softmax": (0.5, 0.015), "sigmoid": (1.0, 0.025), "dense": (0.0, 0.0)}
"""As `ATTENTION`: finding the experts of a token, and gathering the tokens of an expert."""
STEP_SECONDS = {"compiled": 0.1e-3, "layer": 0.55e-3, "moe": 0.33e-3, "mixed": 0.07e-3, "mhc": 0.18e-3, "kda": 0.15e-3, "indexed": 0.15e-3}
"""Seconds of a decoding step a layer, however few rows there are: of the compiled step, of any other layer, and what it adds."""
KEPT_BYTES = {"single": 85, "mixed": 115, "mhc": 177}
"""Bytes that the gradient needs of a token and layer in bf16, for each unit of the width; in fp32 twice as many."""
HIDDEN_BYTES = 6
"""The same for each unit of the feed-forward's hidden width."""
PAIR_BYTES = {"indexed": 80, "dense": 8}
"""Bytes that the gradient needs of a layer for each pair of positions in a row."""


class Size(NamedTuple):
    """What a model's costs follow from, sums over its layers."""

    parameters: int
    active: int
    """Parameters in matrices that a token is multiplied with, the output head among them."""
    decoding: str
    """How steps are decoded: `compiled` or `loop`."""
    decoded: int
    """Parameters that a decoding step counts: in a compiled one all in matrices, as it passes a token through every expert."""
    layers: int
    token_seconds: float
    """Seconds a token of training beside the products."""
    step_seconds: float
    """Seconds of a decoding step beside weights and rows."""
    kept_bytes: int
    """Bytes a token that a gradient needs."""
    pair_bytes: int
    """Bytes a pair of positions in a row that it needs as well."""
    cache_bytes: int
    """Bytes a row that decoding keeps at the model's context, about."""


@lru_cache(maxsize=1024)
def size_of(model: ModelRecipe) -> Size:
    """Return the size of `model`."""
    embedding = model.vocabulary * model.width
    matrices = [_layer_parameters(model, layer) for layer in range(model.layers)]
    every, active = (sum(column) + embedding for column in zip(*matrices, strict=True))
    return Size(
        parameters=every + embedding * (0 if model.tied else 1),
        active=active,
        decoding="compiled" if model.has_compiled_step else "loop",
        decoded=every if model.has_compiled_step else active,
        layers=model.layers,
        token_seconds=sum(_token_microseconds(model, layer) for layer in range(model.layers)) * MICROSECOND,
        step_seconds=sum(_step_seconds(model, layer) for layer in range(model.layers)),
        kept_bytes=sum(_kept_bytes(model, layer) for layer in range(model.layers)),
        pair_bytes=sum(PAIR_BYTES.get(model.attention(layer), 0) for layer in range(model.layers)),
        cache_bytes=sum(_cache_bytes(model, layer) for layer in range(model.layers)),
    )


def pass_seconds(size: Size, tokens: float, precision: str) -> float:
    """Return the seconds of one forward pass over `tokens`."""
    products = 2 * size.active * tokens / PRODUCTS[precision]
    return products + (size.token_seconds * tokens + CALL_SECONDS * size.layers) / 3


def training_seconds(size: Size, tokens: float, precision: str, trained: float = 1.0) -> float:
    """Return the seconds of one optimiser step on `tokens`; `trained` is the share of the parameters that learn.

    The gradient passes every layer: it costs a forward pass for the activations, and one for the parameters that learn.
    """
    parameters = size.parameters * (TRAINED_SECONDS * trained + FROZEN_SECONDS * (1 - trained))
    return pass_seconds(size, tokens, precision) * (2 + trained) + parameters


def decoding_seconds(size: Size, steps: float, tokens: float, precision: str) -> float:
    """Return the seconds of `steps` decoding steps that read `tokens` in all their rows."""
    a_step = size.step_seconds + WEIGHT_SECONDS[size.decoding][precision] * size.decoded
    a_token = 2 * size.decoded / NARROW_PRODUCTS[size.decoding][precision] + size.token_seconds / 3
    return steps * a_step + tokens * a_token


def training_mb(size: Size, tokens: float, length: int, precision: str, trained: float = 1.0) -> float:
    """Return the memory of weights, gradients and AdamW's two moments, and of what the gradient needs of `tokens` in rows of `length`."""
    kept = size.kept_bytes * (1 if precision == "bf16" else 2) + size.pair_bytes * length
    return (size.parameters * (4 + 12 * trained) + kept * tokens) / MB


def decoding_mb(size: Size, rows: float) -> float:
    """Return the memory of weights in two dtypes or forms, and of the caches of `rows`, some of them copied when rows end."""
    return (size.parameters * 8 + 1.4 * size.cache_bytes * rows) / MB


def _layer_parameters(model: ModelRecipe, layer: int) -> tuple[int, int]:
    """Return the parameters of the matrices of a layer, and those of them that a token uses."""
    width, kind = model.width, model.attention(layer)
    attention = 4 * width * width
    if kind == "kda":
        attention += 4 * width * width // model.heads + 13 * width
    if kind == "indexed":
        attention = width * (2 * width + 2 * model.query_rank + 3 * model.kv_rank)
        attention -= width * width - model.query_rank * model.index_heads * model.index_size - 2 * width * model.index_size
    if model.residual == "mhc":
        attention += 2 * model.streams * width * model.streams * (model.streams + 2)
    if model.feed_forward(layer) == "dense":
        hidden = 3 * width * model.dense_hidden
        return attention + hidden, attention + hidden
    expert = 3 * width * model.expert_hidden
    router = width * model.experts
    return attention + router + (model.experts + 1) * expert, attention + router + (model.top_k + 1) * expert


def _token_microseconds(model: ModelRecipe, layer: int) -> float:
    constant, by_width = map(sum, zip(ATTENTION[model.attention(layer)], FEED_FORWARD[model.feed_forward(layer)], strict=True))
    return constant + model.width * (by_width + STREAM[model.residual] * model.streams)


def _step_seconds(model: ModelRecipe, layer: int) -> float:
    if model.has_compiled_step:
        return STEP_SECONDS["compiled"]
    moe = "dense" if model.feed_forward(layer) == "dense" else "moe"
    return STEP_SECONDS["layer"] + sum(STEP_SECONDS.get(word, 0.0) for word in (model.attention(layer), model.residual, moe))


def _kept_bytes(model: ModelRecipe, layer: int) -> int:
    chosen = {"kda": 40, "indexed": 40}.get(model.attention(layer), 0)
    dense = model.feed_forward(layer) == "dense"
    hidden = model.dense_hidden if dense else (model.top_k + 1) * model.expert_hidden
    return model.width * (KEPT_BYTES[model.residual] + chosen) + hidden * HIDDEN_BYTES


def _cache_bytes(model: ModelRecipe, layer: int) -> int:
    kind = model.attention(layer)
    if kind in ("elu", "kda"):
        return 4 * model.width * model.width // model.heads
    kept = {"strided": model.window + model.context // model.stride, "indexed": model.context // 2}.get(kind, model.context)
    return 4 * model.width * kept
