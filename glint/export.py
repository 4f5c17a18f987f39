"""Write a checkpoint as the folder of a public library: `python -m glint.export CHECKPOINT OUT [--trained FOLDER]`.

A `dense` model is the Llama of the library `transformers`, which reads the folder with `AutoModelForCausalLM.from_pretrained`.
It holds no tokenizer: ids 0 to 3 are pad, bos, eos and sep, byte b is id 4 + b.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from glint.config.model import ModelRecipe
from glint.files import replacing, write_json
from glint.generate import NEVER_SAMPLED
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.tasks.tokenizer import BOS, EOS, PAD

LLAMA = {"linear": "none", "sparse": "dense", "residual": "single", "ffn": "dense"}
"""The mechanisms that make a Llama."""


def require_llama(recipe: ModelRecipe) -> None:
    """Raise ValueError where the library has no class for the model."""
    other = [f"{key} is {getattr(recipe, key)}, not {wanted}" for key, wanted in LLAMA.items() if getattr(recipe, key) != wanted]
    if other:
        raise ValueError(f"only a dense model can be exported, the library has no class for others: of this one {', '.join(other)}")


def llama_config(recipe: ModelRecipe) -> dict[str, Any]:
    """Return the library's `config.json` of a dense model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": recipe.vocabulary,
        "hidden_size": recipe.width,
        "intermediate_size": recipe.dense_hidden,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.heads,
        "max_position_embeddings": recipe.context,
        "rope_parameters": {"rope_type": "default", "rope_theta": recipe.rope_base},
        "rms_norm_eps": recipe.norm_epsilon,
        "initializer_range": recipe.init_std,
        "tie_word_embeddings": recipe.tied,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "dtype": "float32",
    }


def generation_config() -> dict[str, Any]:
    """Return the library's `generation_config.json`: greedy, without the control ids that are never sampled here either."""
    return {"do_sample": False, "suppress_tokens": list(NEVER_SAMPLED), "pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}


def llama_tensors(model: Decoder) -> dict[str, Tensor]:
    """Return the weights of a dense model under the library's names and in its shapes."""
    own = {name: parameter.detach() for name, parameter in model.named_parameters()}
    tensors = {"model.embed_tokens.weight": own["embedding"], "model.norm.weight": own["final_norm"]}
    if not model.recipe.tied:
        tensors["lm_head.weight"] = own["head"]
    for layer in range(model.recipe.layers):
        block, theirs = f"blocks.{layer}", f"model.layers.{layer}"
        tensors[f"{theirs}.input_layernorm.weight"] = own[f"{block}.attention_norm"]
        tensors[f"{theirs}.post_attention_layernorm.weight"] = own[f"{block}.ffn_norm"]
        for name, part in zip("qkv", own[f"{block}.qkv"].chunk(3), strict=True):
            tensors[f"{theirs}.self_attn.{name}_proj.weight"] = part
        tensors[f"{theirs}.self_attn.o_proj.weight"] = own[f"{block}.out"]
        gate, value = own[f"{block}.up"].t().chunk(2)
        tensors |= {f"{theirs}.mlp.gate_proj.weight": gate, f"{theirs}.mlp.up_proj.weight": value}
        tensors[f"{theirs}.mlp.down_proj.weight"] = own[f"{block}.down"].t()
    return {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}


def export(model: Decoder, out: Path) -> None:
    """Write the library's folder of a dense model, float32; raises ValueError for any other model."""
    require_llama(model.recipe)
    with replacing(out / "model.safetensors") as temporary:
        save_file(llama_tensors(model), temporary, metadata={"format": "pt"})
    write_json(out / "generation_config.json", generation_config())
    write_json(out / "config.json", llama_config(model.recipe))


def main() -> None:
    """Export what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint", type=Path, help="folder of a whole checkpoint")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--trained", type=Path, help="folder of the tensors that RL has trained, laid over the checkpoint")
    given = parser.parse_args()
    folders = [given.checkpoint, *([given.trained] if given.trained else [])]
    try:
        export(checkpoint.load(folders, torch.device("cpu"), torch.float32), given.out)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
