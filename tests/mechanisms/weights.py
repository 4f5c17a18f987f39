"""A small faithful model and its mechanisms with random weights, their float64 copies, and the library's modules with the same weights."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from glint.config.model import ModelRecipe
from glint.export import block_tensors, glm_text_config
from tests.reference.agreement import relative_error

Module = TypeVar("Module", bound=nn.Module)

RECIPE = ModelRecipe(
    linear="kda",
    sparse="indexed",
    residual="mhc",
    router="sigmoid",
    dense_layers=1,
    width=64,
    layers=4,
    heads=4,
    experts=4,
    expert_hidden=32,
    ffn_hidden=128,
    gate_limit=10.0,
    visible=32,
    pool=8,
    query_rank=32,
    kv_rank=32,
    index_size=16,
    norm_epsilon=1e-5,
    tied=False,
)
WIDTH, HEADS, SIZE = RECIPE.width, RECIPE.heads, RECIPE.width // RECIPE.heads


def recipe(**changed: Any) -> ModelRecipe:
    """Return the small model with other sizes."""
    return ModelRecipe.model_validate(RECIPE.model_dump() | changed)


def library_config(library: Any, own: ModelRecipe = RECIPE) -> Any:
    """Return the library's config of a faithful model."""
    return library.Glm5NextTextConfig(**glm_text_config(own), attn_implementation="eager")


def library_names(tensors: dict[str, Tensor], module: str) -> dict[str, Tensor]:
    """Return a mechanism's tensors, or their gradients, as the library's `module` of a block names them."""
    named = [pair for name, tensor in tensors.items() for pair in block_tensors(name, tensor).items()]
    return {name.removeprefix(module + "."): tensor for name, tensor in named}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def randomise(module: Module, seed: int, gain: float = 1.0) -> Module:
    """Draw every tensor, also those that start as zeros or ones, so that no symmetry of the start can hide a mistake.

    Matrices keep the size of what they multiply, times `gain`; vectors are 1 + N(0, 0.3) for norms, else N(0, 1).
    """
    draws = generator(seed)
    for name, tensor in sorted([*module.named_parameters(), *module.named_buffers()]):
        noise = torch.randn(tensor.shape, generator=draws)
        if tensor.dim() > 1:
            fan_in = tensor.shape[-2] if re.search(r"\b(up|down)$", name) and tensor.dim() == 3 else tensor.shape[-1]
            tensor.copy_(noise * gain * fan_in**-0.5)
        else:
            tensor.copy_(1 + 0.3 * noise if name.endswith("norm") else noise)
    return module


def doubles(module: nn.Module) -> dict[str, Tensor]:
    """Return float64 copies of a module's tensors, which ask for gradients."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor.detach().double().requires_grad_() for name, tensor in tensors}


def gradients(loss: Tensor, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradient of `loss` for each tensor that asks for one; 0 where it has no influence."""
    wanted = {name: tensor for name, tensor in tensors.items() if tensor.requires_grad}
    return dict(zip(wanted, torch.autograd.grad(loss, list(wanted.values()), allow_unused=True, materialize_grads=True), strict=True))


def largest_disagreement(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Return the largest relative error over the names of `found`; a tensor whose gradient is 0 in `expected` must have 0."""
    errors = []
    for name, gradient in found.items():
        if expected[name].abs().max() == 0:
            assert gradient.abs().max() == 0, name
        else:
            errors.append(relative_error(gradient, expected[name]))
    return max(errors)
