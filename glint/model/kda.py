"""Kimi Delta Attention (Kimi Team, 2025: Kimi Linear), as GLM's linear layers have it: a decay a channel, bounded from below.

Each head keeps one matrix S [K, V]. A token first lets row d of S fade by e^(g_d), then moves what S answers to its key k towards
its value v: S <- diag(e^g) S; S <- S + k (x) beta (v - S^T k). Its output is S^T q. Compiled loops on a CPU, and decoding
everywhere, do this token by token; elsewhere training does 16 tokens at a time. Matrix products take the dtype of the input,
everything else is float32.

Beside the package's legend: B rows of one span, C chunks, I tokens of a chunk, V value size of a head (= K), J = 3 inputs that the
convolution sees beside a token's own, X = 3 H K channels of q, k and v (H K = D).
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad, silu

from glint.config.model import ModelRecipe
from glint.device import compiles
from glint.model import compiled
from glint.model.layout import Rows
from glint.model.mechanism import Parameters, Starts, Weights
from glint.model.primitives import rms_norm
from glint.model.rotary import Rotary
from glint.model.spans import spans

CHUNK = 16
"""The exponent of a whole chunk, at most 16 * 5 = 80, still has its e^80 in float32."""
KERNEL = 4
"""Tokens that the convolution sees: a token and the three before it."""
STRONGEST_DECAY = -5.0
"""Lowest log decay of a channel in one step."""
KEY_EPSILON = 1e-6


@dataclass
class KDAState:
    """The whole decode cache of a layer, constant in length."""

    s_BHKV: Tensor
    """Float32; the compiled loops pad its columns to whole registers."""
    inputs_BJX: Tensor
    """The last three inputs of the convolution, [B, 3, X]; zeros before the first token."""

    def select(self, rows: Tensor) -> "KDAState":
        """Return the state of the rows `rows`, repeated or dropped as the index says."""
        return KDAState(self.s_BHKV.index_select(0, rows), self.inputs_BJX.index_select(0, rows))


def recurrent(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta_BTH: Tensor, s_BHKV: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs [B, T, H, V] of the recurrence and the last S; q, k, v and the log decay g are [B, T, H, K]."""
    outputs = []
    for q_t, k_t, v_t, g_t, beta_t in zip(*(x.unbind(1) for x in (q, k, v, g, beta_BTH)), strict=True):
        s_BHKV = s_BHKV * g_t.exp()[..., None]
        change_BHV = beta_t[..., None] * (v_t - _read(s_BHKV, k_t))
        s_BHKV = s_BHKV + k_t[..., None] * change_BHV[..., None, :]
        outputs.append(_read(s_BHKV, q_t))
    return torch.stack(outputs, 1), s_BHKV


def _read(s_BHKV: Tensor, x_BHK: Tensor) -> Tensor:
    return (x_BHK[..., None, :] @ s_BHKV).squeeze(-2)


def chunked(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta_BTH: Tensor, s_BHKV: Tensor) -> tuple[Tensor, Tensor]:
    """Return what `recurrent` returns, 16 tokens at a time.

    Within a chunk let G be the sum of g from its start. What token i takes from token j < i passes the decay e^(G_i - G_j), which
    factors into e^(G_i - m) e^(m - G_j); with m half of the chunk's total neither exponent exceeds 40. The changes
    x_i = beta_i (v_i - S^T k_i) of a chunk solve the unit-triangular system (I + A) x = beta (v - (k e^G) S_start),
    A_ij = beta_i k_i . (e^(G_i - G_j) k_j). S is carried as S e^m, so that the factored keys and queries read it as they are.
    """
    batch, length = q.shape[:2]
    q, k, v, g, beta = (_chunks(x) for x in (q, k, v, g, beta_BTH[..., None]))
    total = g.cumsum(-2)
    middle = total[..., -1:, :] / 2
    grown = (total - middle).exp()
    reading_q, reading_k, writing_k = q * grown, k * grown, (k / grown).transpose(-1, -2)
    a = (beta * (reading_k @ writing_k)).tril(-1)
    solved = torch.linalg.solve_triangular(a, beta * torch.cat([v, reading_k], -1), upper=False, unitriangular=True)
    starts, changes, last = _walk(solved, writing_k, middle.exp().transpose(-1, -2), s_BHKV)
    outputs = reading_q @ starts + (reading_q @ writing_k).tril() @ changes
    return outputs.permute(1, 0, 3, 2, 4).reshape(batch, -1, *outputs.shape[2:3], v.shape[-1])[:, :length], last


def _chunks(x_BTHK: Tensor) -> Tensor:
    """Return [C, B, H, I, K]; zeros fill the last chunk, which leave S as it is."""
    length = x_BTHK.shape[1]
    filled = pad(x_BTHK, (0, 0, 0, 0, 0, -length % CHUNK)) if length % CHUNK else x_BTHK
    return filled.unflatten(1, (-1, CHUNK)).permute(1, 0, 3, 2, 4).contiguous()


def _walk(solved: Tensor, writing_k: Tensor, faded_half: Tensor, s_BHKV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Carry S from chunk to chunk; return each chunk's S e^m at its start, its changes x, and the last S.

    The chunks depend on each other here alone, so everything else is one batched product over all of them.
    """
    heads = s_BHKV.shape[:2]
    faded = faded_half * torch.cat([faded_half[1:], torch.ones_like(faded_half[:1])])  # e^m of this chunk and of the next
    of_v, of_k = solved.split([s_BHKV.shape[-1], s_BHKV.shape[-2]], -1)
    s = (s_BHKV * faded_half[0]).flatten(0, 1)
    starts, changes = [], []
    for v, k, write, fade in zip(*(x.flatten(1, 2).unbind(0) for x in (of_v, of_k, writing_k, faded)), strict=True):
        starts.append(s)
        changes.append(torch.baddbmm(v, k, s, alpha=-1))
        s = torch.baddbmm(s, write, changes[-1]) * fade
    return torch.stack(starts).unflatten(1, heads), torch.stack(changes).unflatten(1, heads), s.unflatten(0, heads)


def unit_length(x: Tensor) -> Tensor:
    """Return x / sqrt(sum x^2 + 1e-6) over the last axis."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + KEY_EPSILON)


def last_inputs(x_NX: Tensor, rows: Rows) -> Tensor:
    """Return what a row's next token finds before it in the convolution [R, 3, X]: its last tokens, or the prompt's, or zeros."""
    prompt, lengths = rows.layout.prompt, torch.tensor(rows.layout.lengths, device=x_NX.device)[:, None]
    own = lengths + torch.arange(1 - KERNEL, 0, device=x_NX.device)
    packed = torch.where(own >= 0, torch.from_numpy(rows.starts[:-1]).to(x_NX.device)[:, None] + own, prompt + own)
    return x_NX.detach()[packed.clamp(min=0)] * (packed >= 0)[..., None]


def _vectors(weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
    return weights["convolution"], weights["decay_bias"], weights["decay_log_rate"]


def draw_decay_bias(bias: Tensor, generator: torch.Generator) -> None:
    """Fill `bias` so that its softplus is log-uniform in [0.001, 0.1]."""
    steps = bias.uniform_(math.log(1e-3), math.log(1e-1), generator=generator).exp().clamp(min=1e-4)
    bias.copy_(steps + torch.log(-torch.expm1(-steps)))


STARTS: Starts = {"decay_bias": draw_decay_bias}


class KimiDeltaAttention:
    """Linear attention with a decay a channel and the delta rule."""

    matrices = ("qkv", "decay_down", "decay_up", "beta", "gate_down", "gate_up", "out")
    starts = STARTS

    def __init__(self, recipe: ModelRecipe) -> None:
        self.heads, self.head_size, self.norm_epsilon = recipe.heads, recipe.width // recipe.heads, recipe.norm_epsilon
        self.width = recipe.width

    def parameters(self) -> Parameters:
        """Return the maps to queries, keys and values, `qkv` [3D, D], to the output, to decay, gate and beta, and the layer's vectors.

        The last column of the convolution's kernel [3D, 4] weighs the token itself.
        """
        width, size = self.width, self.head_size
        shapes = {"qkv": (3 * width, width), "convolution": (3 * width, KERNEL), "beta": (self.heads, width), "out": (width, width)}
        shapes |= dict.fromkeys(("decay_down", "gate_down"), (size, width)) | dict.fromkeys(("decay_up", "gate_up"), (width, size))
        drawn = {name: nn.Parameter(torch.empty(shape)) for name, shape in (shapes | {"decay_bias": (width,)}).items()}
        return drawn | {"decay_log_rate": nn.Parameter(torch.zeros(self.heads)), "head_norm": nn.Parameter(torch.ones(size))}

    def decoding(self, weights: Weights) -> Weights:
        """Return `weights` as they are."""
        return weights

    def forward(self, x_ND: Tensor, weights: Weights, rows: Rows, kept: list[Any] | None) -> Tensor:
        """Return the change [N, D] of packed tokens; see `Attention`."""
        x_NX, z_ND, beta_NH = self._projected(x_ND, weights)
        if compiles(x_ND.device):
            attended_NHK, s_RHKV = compiled.delta_attention(x_NX, z_ND, beta_NH, *_vectors(weights), rows)
        else:
            attended_NHK, s_RHKV = self._attend(x_NX, self._log_decay(z_ND, weights), beta_NH.float().sigmoid(), weights, rows)
        if kept is not None:
            kept.append(KDAState(s_RHKV, last_inputs(x_NX, rows)))
        return self._output(attended_NHK, x_ND, weights)

    def step(self, x_RD: Tensor, weights: Weights, positions_R: Tensor, rotary: Rotary, kept: KDAState) -> Tensor:  # noqa: ARG002
        """Add one position a row to `kept`, in place, and return its change [R, D]."""
        x_RX, z_RD, beta_RH = self._projected(x_RD, weights)
        if compiles(x_RD.device):
            attended_RHK = compiled.delta_step(x_RX, z_RD, beta_RH, *_vectors(weights), kept.inputs_BJX, kept.s_BHKV)
            return self._output(attended_RHK, x_RD, weights)
        inputs = torch.cat([kept.inputs_BJX, x_RX[:, None]], 1)
        convolved_R1X = silu((inputs.float() * weights["convolution"].t()).sum(1))[:, None]
        g_RHK, beta_RH = self._log_decay(z_RD, weights), beta_RH.float().sigmoid()
        attended_R1HV, s_BHKV = recurrent(*self._split(convolved_R1X), g_RHK[:, None], beta_RH[:, None], kept.s_BHKV)
        kept.inputs_BJX.copy_(inputs[:, 1:])
        kept.s_BHKV.copy_(s_BHKV)
        return self._output(attended_R1HV[:, 0], x_RD, weights)

    def _projected(self, x_ND: Tensor, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k and v before their convolution [N, 3D], the decay before its bias [N, D], beta before its sigmoid [N, H]."""
        z_ND = x_ND @ weights["decay_down"].t() @ weights["decay_up"].t()
        return x_ND @ weights["qkv"].t(), z_ND, x_ND @ weights["beta"].t()

    def _attend(self, x_NX: Tensor, g_NHK: Tensor, beta_NH: Tensor, weights: Weights, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the attended values [N, H, K] and the state after each row."""
        kernel_XJ, outputs = weights["convolution"], []
        s_BHKV = x_NX.new_zeros(1, self.heads, self.head_size, self.head_size, dtype=torch.float32)
        for span in spans(rows):
            inputs_BTX = pad(span.whole(x_NX).float(), (0, 0, KERNEL - 1, 0))[:, span.start :]
            convolved_BXT = silu(conv1d(inputs_BTX.transpose(1, 2), kernel_XJ[:, None], groups=len(kernel_XJ)))
            g, beta_BTH = span.pad(g_NHK), span.pad(beta_NH)
            if not span.indices.identity:  # padding changes nothing in S
                real_BT = span.indices.real_RT
                g, beta_BTH = g * real_BT[..., None, None], beta_BTH * real_BT[..., None]
            start = s_BHKV.expand(span.rows, -1, -1, -1)
            attended, s_BHKV = chunked(*self._split(convolved_BXT.transpose(1, 2)), g, beta_BTH, start)
            outputs.append(span.unpad(attended))
        return torch.cat(outputs), s_BHKV

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k (both of unit length, q scaled by K^-0.5) and v, [..., H, K], of convolved channels [..., X]."""
        q, k, v = x.unflatten(-1, (3, self.heads, self.head_size)).unbind(-3)
        return unit_length(q) * self.head_size**-0.5, unit_length(k), v

    def _log_decay(self, z_ND: Tensor, weights: Weights) -> Tensor:
        """Return g [N, H, K] in (-5, 0)."""
        rate_H1 = weights["decay_log_rate"].exp()[:, None]
        return STRONGEST_DECAY * torch.sigmoid(rate_H1 * (z_ND.float() + weights["decay_bias"]).unflatten(-1, (self.heads, -1)))

    def _output(self, attended_NHK: Tensor, x_ND: Tensor, weights: Weights) -> Tensor:
        gate_ND = (x_ND @ weights["gate_down"].t() @ weights["gate_up"].t()).float().sigmoid()
        normed_ND = rms_norm(attended_NHK.flatten(0, 1), weights["head_norm"], self.norm_epsilon, torch.float32).view(gate_ND.shape)
        return (normed_ND * gate_ND).to(x_ND.dtype) @ weights["out"].t()
