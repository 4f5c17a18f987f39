"""Random weights for the mechanisms, their float64 copies, and the library's modules with the same weights."""

import re
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tests.reference.agreement import relative_error

Module = TypeVar("Module", bound=nn.Module)

WIDTH, LAYERS, VOCABULARY = 64, 4, 256
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "qk_rope_head_dim": 0,
    "linear_num_heads": 4,
    "linear_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "index_topk": 32,
    "index_kpool": 8,
    "index_head_dim": 16,
    "index_n_heads": 4,
    "pad_token_id": None,
    "attn_implementation": "eager",
}


def library_config(library: Any, **changed: Any) -> Any:
    """Return the library's config of a tiny model."""
    return library.Glm5NextTextConfig(**SIZES | changed)


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
            tensor.copy_(1 + 0.3 * noise if re.search(r"norm(\.weight)?$", name) else noise)
    return module


def doubles(module: nn.Module) -> dict[str, Tensor]:
    """Return float64 copies of a module's tensors, which ask for gradients."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor.detach().double().requires_grad_() for name, tensor in tensors}


def gradients(loss: Tensor, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
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
