"""The production decoder's parameters under the reference's names and in its shapes."""

import torch
from torch import Tensor, nn

from glint.config.model import ModelRecipe
from glint.model.decoder import Decoder
from tests.reference.hybrid import Weights, parameter_shapes


def production_name(name: str) -> tuple[str, int | None]:
    """Return the production parameter that holds reference parameter `name`, and the expert in it if it stacks experts."""
    parts = name.removesuffix(".weight").split(".")
    if parts[0] != "layers":
        return parts[0], None
    block, leaf = f"blocks.{parts[1]}", parts[-1]
    if leaf in ("up", "down"):
        return f"{block}.{leaf}", -1 if parts[-2] == "shared" else int(parts[-2])
    return f"{block}.{leaf}", None


def in_reference_shape(name: str, production: dict[str, Tensor]) -> Tensor:
    """Return the view of a production tensor that is reference parameter `name`."""
    key, expert = production_name(name)
    tensor = production[key]
    return tensor if expert is None else tensor[expert].T


def decoder(weights: Weights, recipe: ModelRecipe, dtype: torch.dtype = torch.float32) -> Decoder:
    """Return a production decoder that holds `weights`."""
    model = Decoder(recipe, dtype)
    fill(model, weights)
    return model


@torch.no_grad()
def fill(model: Decoder, weights: Weights) -> None:
    """Copy `weights` into `model`."""
    own: dict[str, Tensor] = dict(model.named_parameters())
    for name, weight in weights.items():
        in_reference_shape(name, own).copy_(weight)


def gradients(loss: Tensor, model: Decoder) -> Weights:
    """Return the gradient of `loss` for every trainable parameter of `model`, under the reference's names."""
    trained: dict[str, nn.Parameter] = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    found = dict(zip(trained, torch.autograd.grad(loss, list(trained.values())), strict=True))
    names = [name for name in parameter_shapes(model.recipe) if production_name(name)[0] in found]
    return {name: in_reference_shape(name, found) for name in names}
