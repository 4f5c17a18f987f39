"""Small models of the mechanisms, in combinations."""

from typing import Any

from glint.config.model import ModelRecipe

SMALL: dict[str, Any] = {"width": 16, "layers": 5, "heads": 2, "experts": 3, "expert_hidden": 8, "streams": 3, "window": 4, "stride": 3}
SMALL |= {"visible": 8, "query_rank": 8, "kv_rank": 6, "index_size": 4, "context": 40, "init_std": 0.1}
LLAMA = SMALL | {"linear": "none", "sparse": "dense", "residual": "single", "ffn": "dense"}
FAITHFUL = SMALL | {"linear": "kda", "sparse": "indexed", "residual": "mhc", "router": "sigmoid"}
FAITHFUL |= {"dense_layers": 1, "ffn_hidden": 12, "gate_limit": 2.0, "tied": False}
SWITCHES = ("linear", "sparse", "residual", "feed-forward")
FEED_FORWARD: dict[str, dict[str, Any]] = {"softmax": {}, "sigmoid": {"router": "sigmoid"}, "dense": {"ffn": "dense"}}
EVERY_PAIR = (
    "elu strided mixed softmax",
    "elu indexed mhc sigmoid",
    "elu dense single dense",
    "kda strided mhc dense",
    "kda indexed single softmax",
    "kda dense mixed sigmoid",
    "none strided single sigmoid",
    "none indexed mixed dense",
    "none dense mhc softmax",
)
"""An orthogonal array: any two mechanisms of different kinds meet in one of these models."""


def combination(words: str) -> ModelRecipe:
    """Return the small model of four mechanisms."""
    chosen = dict(zip(SWITCHES, words.split(), strict=True))
    return ModelRecipe.model_validate(SMALL | FEED_FORWARD[chosen.pop("feed-forward")] | chosen)


COMBINATIONS = {words: combination(words) for words in EVERY_PAIR} | {
    "faithful": ModelRecipe.model_validate(FAITHFUL),
    "untied": ModelRecipe.model_validate(LLAMA | {"tied": False}),
    "one stream, one expert": ModelRecipe.model_validate(SMALL | {"streams": 1, "top_k": 1}),
}
