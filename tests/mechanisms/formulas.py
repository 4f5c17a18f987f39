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
    size, heads = len(w["norm"]), len(w["decay_log_rate"])
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
    size, heads = len(w["norm"]), len(w["decay_log_rate"])
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
            merged.append(rms(states[head].T @ q) * w["norm"] * gate)
        outputs.append(w["out"] @ torch.cat(merged))
    return torch.stack(outputs)


def hyper_connection(w: Weights, streams_SD: Tensor, y_D: Tensor, *, iterations: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a layer reads of one token's streams, the new streams after it gave `y_D`, and comb."""
    count = len(streams_SD)
    m = w["projection"] @ rms(streams_SD.flatten())
    scale, base = w["scale"], w["base"]
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
