"""Small models of every combination of mechanisms."""

import itertools
from typing import Any

from glint.config.model import ModelRecipe

SMALL: dict[str, Any] = {"width": 16, "layers": 5, "heads": 2, "experts": 3, "expert_hidden": 8, "streams": 3, "window": 4, "stride": 3}
SMALL |= {"context": 40, "init_std": 0.1}
SWITCHES = {"linear": ("elu", "none"), "sparse": ("strided", "dense"), "residual": ("mixed", "single"), "ffn": ("moe", "dense")}
LLAMA = SMALL | {"linear": "none", "sparse": "dense", "residual": "single", "ffn": "dense"}
COMBINATIONS = {
    " ".join(chosen): ModelRecipe.model_validate(SMALL | dict(zip(SWITCHES, chosen, strict=True)))
    for chosen in itertools.product(*SWITCHES.values())
} | {"untied": ModelRecipe.model_validate(LLAMA | {"tied": False})}
