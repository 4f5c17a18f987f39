"""The reference vectors of the public implementation, from the folder that GLINT_REFERENCE names."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors import safe_open
from torch import Tensor

from glint.config.model import ModelRecipe


@dataclass(frozen=True)
class Vectors:
    """What the public implementation computed in float32 on random weights."""

    recipe: ModelRecipe
    weights: dict[str, Tensor]
    gradients: dict[str, Tensor]
    input_ids: Tensor
    target_ids: Tensor
    logits: Tensor
    router_usage: Tensor
    loss: Tensor


def _recipe(config: dict[str, int]) -> ModelRecipe:
    return ModelRecipe(
        vocabulary=config["vocab_size"],
        width=config["dim"],
        layers=config["layers"],
        heads=config["heads"],
        experts=config["experts"],
        top_k=config["top_k"],
        expert_hidden=config["expert_hidden"],
        streams=config["streams"],
        window=config["sparse_window"],
        stride=config["sparse_stride"],
        context=config["max_sequence_length"],
    )


@pytest.fixture(scope="session")
def vectors() -> Vectors:
    folder = os.environ.get("GLINT_REFERENCE")
    if not folder:
        pytest.skip("GLINT_REFERENCE names no folder: the comparison with the public implementation's vectors is skipped")
    with safe_open(Path(folder) / "hybrid_reference.safetensors", framework="pt") as file:
        recipe = _recipe(json.loads(file.metadata()["config"]))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return Vectors(
        recipe=recipe,
        weights={name.removeprefix("weight."): tensor for name, tensor in tensors.items() if name.startswith("weight.")},
        gradients={name.removeprefix("grad."): tensor for name, tensor in tensors.items() if name.startswith("grad.")},
        **{name: tensors[name] for name in ("input_ids", "target_ids", "logits", "router_usage", "loss")},
    )
