"""Write a checkpoint as the folder of a public library: `python -m glint.export CHECKPOINT OUT [--trained FOLDER]`.

The library `transformers` knows two of the models that a recipe can name. A `dense` one is its Llama, for `AutoModelForCausalLM`; a
`faithful` one is the text part of its Glm5Next, for `AutoModelForImageTextToText`. That class has no form without an image part, so the
folder holds one of no layers and width 1, all zeros: of images it knows nothing. `from_pretrained` reads either folder.
There is no tokenizer in it: ids 0 to 3 are pad, bos, eos and sep, byte b is id 4 + b.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from glint.checkpoints import is_checkpoint, layers
from glint.config.model import ModelRecipe
from glint.files import replacing, write_json
from glint.generate import NEVER_SAMPLED
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.tasks.tokenizer import BOS, EOS, PAD

Tensors = Mapping[str, Tensor]

NAMES = {
    "attention_norm": "input_layernorm.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "out": "self_attn.o_proj.weight",
    # kda
    "beta": "self_attn.b_proj.weight",
    "decay_down": "self_attn.forget_gate.f_a_proj.weight",
    "decay_up": "self_attn.forget_gate.f_b_proj.weight",
    "decay_bias": "self_attn.forget_gate.dt_bias",
    "decay_log_rate": "self_attn.forget_gate.A_log",
    "gate_down": "self_attn.g_a_proj.weight",
    "gate_up": "self_attn.g_b_proj.weight",
    "head_norm": "self_attn.o_norm.weight",
    # indexed
    "query_down": "self_attn.q_a_proj.weight",
    "query_norm": "self_attn.q_a_layernorm.weight",
    "query_up": "self_attn.q_b_proj.weight",
    "kv_down": "self_attn.kv_a_proj_with_mqa.weight",
    "kv_norm": "self_attn.kv_a_layernorm.weight",
    "kv_up": "self_attn.kv_b_proj.weight",
    "index_query": "self_attn.indexer.wq_b.weight",
    "index_key": "self_attn.indexer.wk.weight",
    "index_key_norm": "self_attn.indexer.k_norm.weight",
    "index_key_bias": "self_attn.indexer.k_norm.bias",
    "index_weight": "self_attn.indexer.weights_proj.weight",
    "slot_bias": "self_attn.indexer.index_kpool_compress_ape",
    "slot_gate": "self_attn.indexer.index_kpool_compress_gate",
    # mhc
    "attention_mix": "attn_hc.fn",
    "attention_mix_base": "attn_hc.base",
    "attention_mix_scale": "attn_hc.scale",
    "ffn_mix": "ffn_hc.fn",
    "ffn_mix_base": "ffn_hc.base",
    "ffn_mix_scale": "ffn_hc.scale",
    # sigmoid
    "router": "mlp.gate.weight",
    "router_bias": "mlp.gate.e_score_correction_bias",
}
"""What the library calls the tensors of a block that it has in the same shape; both its classes use these names."""
IMAGE_PART = {
    "patch_embed.proj.weight": (1, 3, 1, 1, 1),
    "patch_embed.proj.bias": (1,),
    "post_layernorm.weight": (1,),
    "downsample.weight": (1, 1, 1, 1),
    "downsample.bias": (1,),
    "merger.proj.weight": (1, 1),
    "merger.post_projection_norm.weight": (1,),
    "merger.post_projection_norm.bias": (1,),
    "merger.gate_proj.weight": (1, 1),
    "merger.up_proj.weight": (1, 1),
    "merger.down_proj.weight": (1, 1),
}
"""Shapes of the smallest image part that Glm5Next allows."""
IMAGE_SIZES = (
    *("hidden_size", "num_heads", "patch_size", "temporal_patch_size", "spatial_merge_size", "out_hidden_size"),
    *("intermediate_size", "projection_intermediate_size"),
)
"""What its config holds, beside a depth of 0: each is 1."""
UNLIMITED = torch.finfo(torch.float32).max
"""Where gates have no limit: Glm5Next always has one, and nothing exceeds this."""


def common_config(recipe: ModelRecipe) -> dict[str, Any]:
    """Return what the configs of both classes say in the same words."""
    return {
        "vocab_size": recipe.vocabulary,
        "hidden_size": recipe.width,
        "intermediate_size": recipe.dense_hidden,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.heads,
        "max_position_embeddings": recipe.context,
        "rms_norm_eps": recipe.norm_epsilon,
        "initializer_range": recipe.init_std,
        "tie_word_embeddings": recipe.tied,
        "hidden_act": "silu",
        "attention_bias": False,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "dtype": "float32",
    }


def llama_config(recipe: ModelRecipe) -> dict[str, Any]:
    """Return the library's `config.json` of a dense model."""
    own = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "mlp_bias": False}
    return common_config(recipe) | own | {"rope_parameters": {"rope_type": "default", "rope_theta": recipe.rope_base}}


def glm_text_config(recipe: ModelRecipe) -> dict[str, Any]:
    """Return the library's config of a faithful model, the text alone."""
    size, layers = recipe.width // recipe.heads, range(recipe.layers)
    linear = {"linear_num_heads": recipe.heads, "linear_head_dim": size}
    latent = {"q_lora_rank": recipe.query_rank, "kv_lora_rank": recipe.kv_rank, "qk_nope_head_dim": size, "v_head_dim": size}
    index = {"index_n_heads": recipe.index_heads, "index_head_dim": recipe.index_size}
    index |= {"index_topk": recipe.visible, "index_kpool": recipe.pool}
    experts = {"n_routed_experts": recipe.experts, "num_experts_per_tok": recipe.top_k, "moe_intermediate_size": recipe.expert_hidden}
    kinds = {
        "layer_types": ["linear_attention" if recipe.attention(layer) == "kda" else "indexed_attention" for layer in layers],
        "mlp_layer_types": ["dense" if recipe.feed_forward(layer) == "dense" else "sparse" for layer in layers],
    }
    own = {"model_type": "glm5_next_text", "hc_mult": recipe.streams, "swiglu_limit": recipe.gate_limit or UNLIMITED}
    return common_config(recipe) | own | linear | latent | index | experts | kinds


def glm_config(recipe: ModelRecipe) -> dict[str, Any]:
    """Return the library's `config.json` of a faithful model."""
    return {
        "architectures": ["Glm5NextForConditionalGeneration"],
        "model_type": "glm5_next",
        "text_config": glm_text_config(recipe),
        "vision_config": {"model_type": "glm5_next_vision", "depth": 0, **dict.fromkeys(IMAGE_SIZES, 1)},
        "tie_word_embeddings": recipe.tied,
        "dtype": "float32",
    }


@dataclass(frozen=True)
class Known:
    """A model that the library has a class for."""

    made_of: dict[str, str | None]
    """Values of the recipe that make it one."""
    trunk: str
    """What stands before the names of the tensors below the head."""
    config: Callable[[ModelRecipe], dict[str, Any]]
    beside: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of what the library's class has beside our tensors."""

    def unlike(self, recipe: ModelRecipe) -> list[str]:
        """Return in words what keeps the recipe from being this model."""
        return [f"{key} is {getattr(recipe, key)}, not {wanted}" for key, wanted in self.made_of.items() if getattr(recipe, key) != wanted]


KNOWN = {
    "dense": Known({"linear": "none", "sparse": "dense", "residual": "single", "ffn": "dense", "gate_limit": None}, "model.", llama_config),
    "faithful": Known(
        {"linear": "kda", "sparse": "indexed", "residual": "mhc", "ffn": "moe", "router": "sigmoid"},
        "model.language_model.",
        glm_config,
        {f"model.visual.{name}": shape for name, shape in IMAGE_PART.items()},
    ),
}


def known(recipe: ModelRecipe) -> Known:
    """Return the library's model that this one is; raises ValueError where there is none."""
    unlike = {name: one.unlike(recipe) for name, one in KNOWN.items()}
    for name, differences in unlike.items():
        if not differences:
            return KNOWN[name]
    reasons = "; ".join(f"it is not {name}, since {', '.join(differences)}" for name, differences in unlike.items())
    raise ValueError(f"only a dense or a faithful model can be exported, the library has no class for others: {reasons}")


def generation_config() -> dict[str, Any]:
    """Return the library's `generation_config.json`: greedy, without the control ids that are never sampled here either."""
    return {"do_sample": False, "suppress_tokens": list(NEVER_SAMPLED), "pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}


def library_tensors(own: Tensors, trunk: str) -> dict[str, Tensor]:
    """Return tensors of a decoder (weights, or their gradients) under the library's names, those below the head behind `trunk`."""
    outside = {"embedding": f"{trunk}embed_tokens.weight", "final_norm": f"{trunk}norm.weight", "head": "lm_head.weight"}
    tensors: dict[str, Tensor] = {}
    for name, tensor in own.items():
        if name in outside:
            tensors[outside[name]] = tensor
        else:
            _, layer, leaf = name.split(".")
            tensors |= {f"{trunk}layers.{layer}.{theirs}": part for theirs, part in block_tensors(leaf, tensor).items()}
    return tensors


def block_tensors(name: str, own: Tensor) -> dict[str, Tensor]:
    """Return what the tensor `name` of a block is in the library: the same, turned, or in parts."""
    return {NAMES[name]: own} if name in NAMES else PARTS[name, own.dim()](own)


def _gate_and_value(module: str, up_DF: Tensor) -> dict[str, Tensor]:
    gate_FD, value_FD = up_DF.mT.chunk(2)
    return {f"{module}.gate_proj.weight": gate_FD, f"{module}.up_proj.weight": value_FD}


PARTS: dict[tuple[str, int], Callable[[Tensor], dict[str, Tensor]]] = {
    ("qkv", 2): lambda own: {f"self_attn.{part}_proj.weight": rows for part, rows in zip("qkv", own.chunk(3), strict=True)},
    ("convolution", 2): lambda own: {"self_attn.conv1d.weight": own[:, None]},
    ("up", 2): lambda own: _gate_and_value("mlp", own),
    ("down", 2): lambda own: {"mlp.down_proj.weight": own.mT},
    ("up", 3): lambda own: {"mlp.experts.gate_up_proj": own[:-1].mT, **_gate_and_value("mlp.shared_experts", own[-1])},
    ("down", 3): lambda own: {"mlp.experts.down_proj": own[:-1].mT, "mlp.shared_experts.down_proj.weight": own[-1].mT},
}
"""The other tensors of a block, by name and number of axes: of an expert layer, the last row is the shared expert."""


def export(model: Decoder, out: Path) -> None:
    """Write the library's folder of a dense or a faithful model, float32; raises ValueError for any other model."""
    one = known(model.recipe)
    tensors = library_tensors(model.state_dict(), one.trunk) | {name: torch.zeros(shape) for name, shape in one.beside.items()}
    with replacing(out / "model.safetensors") as temporary:
        save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, temporary, metadata={"format": "pt"})
    write_json(out / "generation_config.json", generation_config())
    write_json(out / "config.json", one.config(model.recipe))


def folders(given: Path, trained: Path | None) -> list[Path]:
    """Return the folders to load, one over the other; raises ValueError where the base of what RL has trained is not found."""
    if trained is not None:
        return [given, trained]
    return layers(given, remedy="name their folder as CHECKPOINT, and this one with --trained") if is_checkpoint(given) else [given]


def main() -> None:
    """Export what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m glint.export", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint", type=Path, help="folder of a checkpoint; the base of one of RL is found by its hash in the same run")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--trained", type=Path, help="folder of a checkpoint of RL, laid over CHECKPOINT where that is not found")
    given = parser.parse_args()
    try:
        export(checkpoint.load(folders(given.checkpoint, given.trained), torch.device("cpu"), torch.float32), given.out)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
