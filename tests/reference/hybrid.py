"""The `hybrid` decoder in float64, slow on purpose: a loop for each sum sign, so that it can be read against the formulas.

It shares nothing with `glint.model`. Shape suffixes: B rows, T positions, D width, K width of a head, F hidden width of an expert,
E experts, S streams, L layers, V vocabulary.
"""

import torch
from torch import Tensor
from torch.nn.functional import elu, silu

from glint.config.model import ModelRecipe

Weights = dict[str, Tensor]


def parameter_shapes(recipe: ModelRecipe) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every parameter; the output head is the embedding."""
    D, F, E, S = recipe.width, recipe.expert_hidden, recipe.experts, recipe.streams
    shapes: dict[str, tuple[int, ...]] = {"embedding.weight": (recipe.vocabulary, D), "final_norm.weight": (D,)}
    for layer in range(recipe.layers):
        block = f"layers.{layer}"
        shapes |= {f"{block}.read_logits": (S,), f"{block}.write_logits": (S,)}
        shapes |= {f"{block}.attention_norm.weight": (D,), f"{block}.ffn_norm.weight": (D,)}
        shapes |= {f"{block}.attention.qkv.weight": (3 * D, D), f"{block}.attention.out.weight": (D, D)}
        shapes[f"{block}.moe.router.weight"] = (E, D)
        for expert in [*(f"experts.{e}" for e in range(E)), "shared"]:
            shapes |= {f"{block}.moe.{expert}.up.weight": (2 * F, D), f"{block}.moe.{expert}.down.weight": (D, F)}
    return shapes


def random_weights(recipe: ModelRecipe, generator: torch.Generator) -> Weights:
    """Draw every parameter, norms and stream logits too, so that no symmetry of the usual start can hide a mistake."""
    weights = {}
    for name, shape in parameter_shapes(recipe).items():
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name.endswith("norm.weight"):
            weights[name] = 1 + 0.2 * noise
        elif name.endswith("_logits"):
            weights[name] = noise
        else:
            weights[name] = noise * shape[-1] ** -0.5
    return weights


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Divide by the root of the mean square over the last axis, then scale."""
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + epsilon) * weight


def rotate(x_BTK: Tensor, base: float) -> Tensor:
    """Turn the pair (2j, 2j+1) at position t by the angle t * base^(-2j/K): a pair is a complex number, a turn a product."""
    B, T, K = x_BTK.shape
    angles = torch.tensor([[t * base ** (-2 * j / K) for j in range(K // 2)] for t in range(T)], dtype=torch.float64)
    pairs = torch.view_as_complex(x_BTK.reshape(B, T, K // 2, 2))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).reshape(B, T, K)


def linear_attention(q_BTK: Tensor, k_BTK: Tensor, v_BTK: Tensor) -> Tensor:
    """Average the values at s <= t with weights phi(q_t).phi(k_s), phi = elu + 1, the total of the weights at least 1e-6."""
    phi_q, phi_k = elu(q_BTK) + 1, elu(k_BTK) + 1
    outputs = []
    for t in range(q_BTK.shape[1]):
        weights_Bs = (phi_q[:, t, None] * phi_k[:, : t + 1]).sum(dim=-1)
        weighted_BK = (weights_Bs[:, :, None] * v_BTK[:, : t + 1]).sum(dim=1)
        outputs.append(weighted_BK / weights_Bs.sum(dim=1, keepdim=True).clamp(min=1e-6))
    return torch.stack(outputs, dim=1)


def visible_positions(t: int, window: int, stride: int) -> list[int]:
    """List what position t sees in sparse attention: the last `window` positions, itself included, and every stride-th one."""
    return [s for s in range(t + 1) if t - s < window or s % stride == 0]


def sparse_attention(q_BTK: Tensor, k_BTK: Tensor, v_BTK: Tensor, window: int, stride: int) -> Tensor:
    """Softmax attention over the visible positions, scale K^-0.5."""
    outputs = []
    for t in range(q_BTK.shape[1]):
        seen = visible_positions(t, window, stride)
        scores_Bs = (q_BTK[:, t, None] * k_BTK[:, seen]).sum(dim=-1) * q_BTK.shape[-1] ** -0.5
        outputs.append((scores_Bs.softmax(dim=-1)[:, :, None] * v_BTK[:, seen]).sum(dim=1))
    return torch.stack(outputs, dim=1)


def attention(weights: Weights, layer: int, x_BTD: Tensor, recipe: ModelRecipe) -> Tensor:
    """Project to q, k and v, attend head by head, project back; layers 3, 7, 11, ... are sparse, the others linear."""
    q_BTD, k_BTD, v_BTD = (x_BTD @ weights[f"layers.{layer}.attention.qkv.weight"].T).chunk(3, dim=-1)
    K = recipe.width // recipe.heads
    heads = []
    for head in range(recipe.heads):
        own = slice(head * K, (head + 1) * K)
        q, k, v = rotate(q_BTD[..., own], recipe.rope_base), rotate(k_BTD[..., own], recipe.rope_base), v_BTD[..., own]
        sparse = (layer + 1) % 4 == 0
        heads.append(sparse_attention(q, k, v, recipe.window, recipe.stride) if sparse else linear_attention(q, k, v))
    return torch.cat(heads, dim=-1) @ weights[f"layers.{layer}.attention.out.weight"].T


def expert(weights: Weights, name: str, x_D: Tensor) -> Tensor:
    """Pass one token through one expert: down(silu(gate) * value), gate the first half of the up projection."""
    gate_F, value_F = (weights[f"{name}.up.weight"] @ x_D).chunk(2)
    return weights[f"{name}.down.weight"] @ (silu(gate_F) * value_F)


def mixture(weights: Weights, layer: int, x_BTD: Tensor, recipe: ModelRecipe) -> tuple[Tensor, Tensor]:
    """Send each token to its top-k experts and the shared one; return the sums and the share of the slots an expert got [E]."""
    moe = f"layers.{layer}.moe"
    counts_E = torch.zeros(recipe.experts, dtype=torch.float64)
    outputs = []
    for x_D in x_BTD.reshape(-1, recipe.width):
        logits_E = weights[f"{moe}.router.weight"] @ x_D
        chosen = logits_E.topk(recipe.top_k).indices.tolist()
        mixing = logits_E[chosen].softmax(dim=0)
        total = expert(weights, f"{moe}.shared", x_D)
        for share, e in zip(mixing, chosen, strict=True):
            total = total + share * expert(weights, f"{moe}.experts.{e}", x_D)
            counts_E[e] += 1
        outputs.append(total)
    return torch.stack(outputs).reshape(x_BTD.shape), counts_E / counts_E.sum()


def block(weights: Weights, layer: int, x_BTD: Tensor, recipe: ModelRecipe) -> tuple[Tensor, Tensor]:
    """h = x + attention(norm(x)); h + moe(norm(h)). Return it and the router's usage [E]."""
    norm = rms_norm(x_BTD, weights[f"layers.{layer}.attention_norm.weight"], recipe.norm_epsilon)
    h_BTD = x_BTD + attention(weights, layer, norm, recipe)
    norm = rms_norm(h_BTD, weights[f"layers.{layer}.ffn_norm.weight"], recipe.norm_epsilon)
    mixed_BTD, usage_E = mixture(weights, layer, norm, recipe)
    return h_BTD + mixed_BTD, usage_E


def hidden(weights: Weights, recipe: ModelRecipe, ids_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Return the final hidden states [B, T, D], normalised, and each layer's router usage [L, E]."""
    streams = [weights["embedding.weight"][ids_BT] for _ in range(recipe.streams)]
    usages = []
    for layer in range(recipe.layers):
        read = weights[f"layers.{layer}.read_logits"].softmax(dim=0)
        write = weights[f"layers.{layer}.write_logits"].softmax(dim=0)
        x_BTD = torch.stack([read[s] * streams[s] for s in range(recipe.streams)]).sum(dim=0)
        t_BTD, usage_E = block(weights, layer, x_BTD, recipe)
        streams = [streams[s] + write[s] * t_BTD for s in range(recipe.streams)]
        usages.append(usage_E)
    final_BTD = rms_norm(torch.stack(streams).mean(dim=0), weights["final_norm.weight"], recipe.norm_epsilon)
    return final_BTD, torch.stack(usages)


def forward(weights: Weights, recipe: ModelRecipe, ids_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits [B, T, V] and each layer's router usage [L, E]; differentiable in float64 leaves of `weights`."""
    final_BTD, usage_LE = hidden(weights, recipe, ids_BT)
    return final_BTD @ weights["embedding.weight"].T, usage_LE


def cross_entropy(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Mean of -log p(target) over all positions of all rows."""
    log_probs_BTV = logits_BTV - logits_BTV.logsumexp(dim=-1, keepdim=True)
    return -log_probs_BTV.gather(-1, targets_BT[..., None]).mean()


def balance_loss(usage_LE: Tensor) -> Tensor:
    """Experts times the mean squared distance of the layer-averaged usage from 1/experts."""
    E = usage_LE.shape[1]
    return E * ((usage_LE.mean(dim=0) - 1 / E) ** 2).mean()


def gradients(loss: Tensor, weights: Weights) -> Weights:
    """Return the gradient of `loss` for every parameter; that of an expert no token went to is 0."""
    return dict(zip(weights, torch.autograd.grad(loss, list(weights.values()), materialize_grads=True), strict=True))
