"""Our tensors under the library's names and in its shapes: weights, to load them there, or gradients, to compare them.

Every function takes a module's tensors by our names.
"""

from torch import Tensor

Tensors = dict[str, Tensor]


def kda(w: Tensors) -> Tensors:
    q, k, v = w["qkv"].chunk(3)
    names = {"q_proj.weight": q, "k_proj.weight": k, "v_proj.weight": v, "conv1d.weight": w["convolution"][:, None]}
    names |= {"forget_gate.f_a_proj.weight": w["decay_down"], "forget_gate.f_b_proj.weight": w["decay_up"]}
    names |= {"forget_gate.dt_bias": w["decay_bias"], "forget_gate.A_log": w["decay_log_rate"], "b_proj.weight": w["beta"]}
    names |= {"g_a_proj.weight": w["gate_down"], "g_b_proj.weight": w["gate_up"]}
    return names | {"o_norm.weight": w["norm"], "o_proj.weight": w["out"]}


def connection(w: Tensors) -> Tensors:
    return {"fn": w["projection"], "base": w["base"], "scale": w["scale"]}


def indexer(w: Tensors) -> Tensors:
    names = {"wq_b.weight": w["query"], "wk.weight": w["key"], "weights_proj.weight": w["head_weight"]}
    names |= {"k_norm.weight": w["key_norm"], "k_norm.bias": w["key_bias"]}
    return names | {"index_kpool_compress_ape": w["slot_bias"], "index_kpool_compress_gate": w["slot_gate"]}


def indexed(w: Tensors) -> Tensors:
    names = {"q_a_proj.weight": w["query_down"], "q_a_layernorm.weight": w["query_norm"], "q_b_proj.weight": w["query_up"]}
    names |= {"kv_a_proj_with_mqa.weight": w["kv_down"], "kv_a_layernorm.weight": w["kv_norm"], "kv_b_proj.weight": w["kv_up"]}
    return names | {"o_proj.weight": w["out"]} | under("indexer.", indexer(within("indexer.", w)))


def mlp(w: Tensors) -> Tensors:
    gate, value = w["up"].T.chunk(2)
    return {"gate_proj.weight": gate, "up_proj.weight": value, "down_proj.weight": w["down"].T}


def moe(w: Tensors) -> Tensors:
    up, down = w["up"].transpose(1, 2), w["down"].transpose(1, 2)
    names = {"gate.weight": w["router"], "experts.gate_up_proj": up[:-1], "experts.down_proj": down[:-1]}
    bias = {"gate.e_score_correction_bias": w["bias"]} if "bias" in w else {}  # it has no gradient
    return names | bias | under("shared_experts.", mlp({"up": w["up"][-1], "down": w["down"][-1]}))


def model(w: Tensors, layers: int) -> Tensors:
    """Name the tensors of `tests.mechanisms.whole.Whole`."""
    names = {"embed_tokens.weight": w["embedding"], "norm.weight": w["final_norm"]}
    for index in range(layers):
        own = within(f"layers.{index}.", w)
        named = {"input_layernorm.weight": own["attention_norm"], "post_attention_layernorm.weight": own["ffn_norm"]}
        for part in ("attn_hc.", "ffn_hc."):
            named |= under(part, connection(within(part, own)))
        attention, ffn = within("attention.", own), within("ffn.", own)
        named |= under("self_attn.", kda(attention) if "convolution" in attention else indexed(attention))
        named |= under("mlp.", moe(ffn) if "router" in ffn else mlp(ffn))
        names |= under(f"layers.{index}.", named)
    return names


def under(prefix: str, tensors: Tensors) -> Tensors:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def within(prefix: str, tensors: Tensors) -> Tensors:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
