"""The real mechanisms in float64, slow on purpose: one row, one position, one head at a time, to be read against the formulas.

They share nothing with `glint.model`; `w` holds a module's weights by their names there. T positions, D width, K head size.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import silu

Weights = dict[str, Tensor]


def rms(x: Tensor, epsilon: float = 1e-5) -> Tensor:
    return x / ((x**2).mean() + epsilon).sqrt()


def kda_inputs(w: Weights, h_TD: Tensor, t: int, head: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v of one position and head after convolution, SiLU and normalisation."""
    size, heads = len(w["head_norm"]), len(w["decay_log_rate"])
    parts = []
    for part in range(3):
        channels = slice((part * heads + head) * size, (part * heads + head + 1) * size)
        total = torch.zeros(size, dtype=torch.float64)
        for back in range(4):
            if t - back >= 0:
                total = total + w["convolution"][channels, 3 - back] * (w["qkv"][channels] @ h_TD[t - back])
        parts.append(silu(total))
    q, k, v = parts
    return q / (q @ q + 1e-6).sqrt() / math.sqrt(size), k / (k @ k + 1e-6).sqrt(), v


def kda(w: Weights, h_TD: Tensor) -> Tensor:
    """Return the layer's output [T, D]."""
    size, heads = len(w["head_norm"]), len(w["decay_log_rate"])
    states = [torch.zeros(size, size, dtype=torch.float64) for _ in range(heads)]
    outputs = []
    for t, h in enumerate(h_TD):
        merged = []
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            q, k, v = kda_inputs(w, h_TD, t, head)
            z = w["decay_up"][own] @ (w["decay_down"] @ h) + w["decay_bias"][own]
            g = -5 * torch.sigmoid(w["decay_log_rate"][head].exp() * z)
            beta = torch.sigmoid(w["beta"][head] @ h)
            faded = g.exp()[:, None] * states[head]
            states[head] = faded + torch.outer(k, beta * (v - faded.T @ k))
            gate = torch.sigmoid(w["gate_up"][own] @ (w["gate_down"] @ h))
            merged.append(rms(states[head].T @ q) * w["head_norm"] * gate)
        outputs.append(w["out"] @ torch.cat(merged))
    return torch.stack(outputs)


def hyper_connection(w: Weights, streams_SD: Tensor, y_D: Tensor, *, iterations: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a layer reads of one token's streams, the new streams after it gave `y_D`, and comb; `w` without the part's name."""
    count = len(streams_SD)
    m = w["mix"] @ rms(streams_SD.flatten())
    scale, base = w["mix_scale"], w["mix_base"]
    pre = [torch.sigmoid(m[i] * scale[0] + base[i]) + 1e-6 for i in range(count)]
    post = [2 * torch.sigmoid(m[count + i] * scale[1] + base[count + i]) for i in range(count)]
    logits = (m * scale[2] + base)[2 * count :].view(count, count)
    comb = logits.exp() / logits.exp().sum(dim=1, keepdim=True) + 1e-6
    comb = comb / (comb.sum(dim=0, keepdim=True) + 1e-6)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(dim=1, keepdim=True) + 1e-6)
        comb = comb / (comb.sum(dim=0, keepdim=True) + 1e-6)
    read = sum((pre[i] * streams_SD[i] for i in range(count)), torch.zeros_like(y_D))
    new = [post[j] * y_D + sum(comb[i, j] * streams_SD[i] for i in range(count)) for j in range(count)]
    return read, torch.stack(new), comb


def index_scores(w: Weights, h_TD: Tensor, latent_TU: Tensor, t: int) -> list[Tensor]:
    """Return what position t thinks of each complete pool, in order."""
    size, heads, pool = len(w["index_key_norm"]), len(w["index_weight"]), len(w["slot_bias"])
    scores = []
    for p in range((t + 1) // pool):
        keys, logits = [], []
        for slot in range(pool):
            h = h_TD[p * pool + slot]
            key = w["index_key"] @ h
            spread = ((key - key.mean()) ** 2).mean() + 1e-6
            keys.append((key - key.mean()) / spread.sqrt() * w["index_key_norm"] + w["index_key_bias"])
            logits.append(w["slot_gate"] @ h + w["slot_bias"][slot])
        shares = torch.stack(logits).softmax(dim=0)
        pooled = sum(shares[slot] * keys[slot] for slot in range(pool))
        score = torch.zeros((), dtype=torch.float64)
        for head in range(heads):
            query = w["index_query"][head * size : (head + 1) * size] @ latent_TU[t]
            weight = w["index_weight"][head] @ h_TD[t] * heads**-0.5
            score = score + weight * (query @ pooled * size**-0.5).clamp(min=0)
        scores.append(score)
    return scores


def chosen_pools(scores: list[Tensor], count: int) -> list[int]:
    """Return the pools of the `count` highest scores in order; of equal scores the lowest pool goes first."""
    return sorted(sorted(range(len(scores)), key=lambda p: (-scores[p].item(), p))[:count])


def indexed(w: Weights, h_TD: Tensor, heads: int, count: int | None) -> tuple[Tensor, Tensor, list[list[int]]]:
    """Return the layer's output [T, D], the indexer's loss [T] and the pools each position sees: `count`, or all (None)."""
    pool, size = len(w["slot_bias"]), len(w["query_up"]) // heads
    query_latent = torch.stack([rms(w["query_down"] @ h) * w["query_norm"] for h in h_TD])
    latent = torch.stack([rms(w["kv_down"] @ h) * w["kv_norm"] for h in h_TD])
    outputs, losses, pools_seen = [], [], []
    for t in range(len(h_TD)):
        scores = index_scores(w, h_TD.detach(), query_latent.detach(), t)
        pools = chosen_pools(scores, len(scores) if count is None else count)
        seen = [s for s in range(t + 1) if s // pool in pools or s >= (t + 1) // pool * pool]
        merged, mass = [], torch.zeros(t + 1, dtype=torch.float64)
        for head in range(heads):
            q = w["query_up"][head * size : (head + 1) * size] @ query_latent[t]
            k, v = ((w["kv_up"][(2 * head + part) * size : (2 * head + part + 1) * size] @ latent[seen].T).T for part in (0, 1))
            shares = (k @ q * size**-0.5).softmax(dim=0)
            merged.append(shares @ v)
            mass[seen] += shares.detach()
        outputs.append(w["out"] @ torch.cat(merged))
        losses.append(index_divergence(scores, mass, pools, pool))
        pools_seen.append(pools)
    return torch.stack(outputs), torch.stack(losses), pools_seen


def index_divergence(scores: list[Tensor], mass: Tensor, pools: list[int], pool: int) -> Tensor:
    """Return KL(p || q) over `pools`: p where the attention's mass went, q the softmax of the scores."""
    if not pools:
        return torch.zeros((), dtype=torch.float64)
    p = torch.stack([mass[i * pool : (i + 1) * pool].sum() for i in pools])
    p = p / p.sum()
    q = torch.stack([scores[i] for i in pools]).softmax(dim=0)
    return (p * (p / q).log()).sum()


def clamped_expert(up_DF: Tensor, down_FD: Tensor, x_D: Tensor, limit: float = 10.0) -> Tensor:
    gate, value = (x_D @ up_DF).chunk(2)
    return (silu(gate.clamp(max=limit)) * value.clamp(-limit, limit)) @ down_FD


def sigmoid_moe(w: Weights, x_ND: Tensor, top_k: int, limit: float = 10.0) -> tuple[Tensor, list[list[int]]]:
    """Return the output [N, D] and each token's experts."""
    outputs, chosen = [], []
    for x in x_ND:
        scores = torch.sigmoid(w["router"] @ x)
        biased = (scores + w["router_bias"]).tolist()
        experts = sorted(range(len(scores)), key=lambda e: (-biased[e], e))[:top_k]
        total = clamped_expert(w["up"][-1], w["down"][-1], x, limit)
        for e in experts:
            total = total + 2.5 * scores[e] / (scores[experts].sum() + 1e-20) * clamped_expert(w["up"][e], w["down"][e], x, limit)
        outputs.append(total)
        chosen.append(experts)
    return torch.stack(outputs), chosen
