"""Hyper-connections as compiled loops, a whole pass: against the PyTorch formulas and against float64 formulas."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from glint import device
from glint.config.model import ModelRecipe
from glint.model import compiled
from glint.model.hyperconnections import TENSORS, HyperStreams
from glint.randomness import torch_generator
from tests.mechanisms import formulas
from tests.reference.agreement import relative_error

LAYERS, TOKENS, WIDTH = 2, 21, 32
EPSILON = 1e-5


class Drawn(NamedTuple):
    """What a pass starts from, and what its layers do."""

    embedded_ND: Tensor
    mixing: list[Tensor]
    """Projection, base and scale of every connection."""
    matrices_DD: list[Tensor]
    """A layer's two parts are tanh(x W)."""
    probe_ND: Tensor

    def differentiated(self) -> list[Tensor]:
        return [tensor.requires_grad_() for tensor in (self.embedded_ND, *self.mixing, *self.matrices_DD)]


def drawn(streams: int, tokens: int = TOKENS) -> Drawn:
    generator, logits = torch_generator(0, "hyper-connections"), streams * (2 + streams)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(*shape, generator=generator)

    mixing = [
        tensor
        for _ in range(2 * LAYERS)
        for tensor in (normal(logits, streams * WIDTH, scale=2 * (streams * WIDTH) ** -0.5), normal(logits), normal(3))
    ]
    matrices = [normal(WIDTH, WIDTH, scale=WIDTH**-0.5) for _ in range(2 * LAYERS)]
    return Drawn(normal(tokens, WIDTH), mixing, matrices, normal(tokens, WIDTH))


def run(given: Drawn, streams: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return the end of a pass whose parts give their change in `dtype`, and the gradients of everything."""
    recipe = ModelRecipe(residual="mhc", streams=streams, width=WIDTH, heads=2, layers=LAYERS, norm_epsilon=EPSILON)
    leaves = given.differentiated()
    stream = HyperStreams(recipe).begin(given.embedded_ND, given.mixing)
    for layer in range(LAYERS):
        attention, ffn = given.matrices_DD[2 * layer : 2 * layer + 2]
        h_ND, residual_ND = stream.after_attention(layer, (stream.before_attention(layer) @ attention).tanh().to(dtype))
        stream.after_feed_forward(layer, residual_ND + (h_ND @ ffn).tanh())
    end_ND = stream.end()
    return [end_ND, *torch.autograd.grad((end_ND * given.probe_ND).sum(), leaves)]


def exact(given: Drawn) -> list[Tensor]:
    """Return the same by the float64 formulas, four streams, one token at a time."""
    leaves = [tensor.detach().double().requires_grad_() for tensor in given.differentiated()]
    embedded_ND, mixing, matrices = leaves[0], leaves[1 : 1 + len(given.mixing)], leaves[1 + len(given.mixing) :]
    ends = []
    for embedded_D in embedded_ND:
        streams_SD = embedded_D.expand(4, -1)
        for index, matrix in enumerate(matrices):
            weights = dict(zip(TENSORS, mixing[3 * index : 3 * index + 3], strict=True))
            x_D, _, _ = formulas.hyper_connection(weights, streams_SD, torch.zeros_like(embedded_D))
            _, streams_SD, _ = formulas.hyper_connection(weights, streams_SD, (x_D @ matrix).tanh())
        ends.append(streams_SD.mean(0))
    end_ND = torch.stack(ends)
    return [end_ND, *torch.autograd.grad((end_ND * given.probe_ND.double()).sum(), leaves)]


def assert_agree(own: list[Tensor], reference: list[Tensor]) -> None:
    assert relative_error(own[0], reference[0]) < 1e-5
    assert max(relative_error(*pair) for pair in zip(own[1:], reference[1:], strict=True)) < 1e-4


@pytest.mark.parametrize("block", [8, 7, 64])
def test_a_pass_and_its_gradients_match_the_float64_formulas(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(compiled, "TOKEN_BLOCK", block)
    assert_agree(run(drawn(4), 4), exact(drawn(4)))


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_any_number_of_streams_matches_the_pytorch_formulas(monkeypatch: pytest.MonkeyPatch, streams: int) -> None:
    own = run(drawn(streams, 300), streams)
    monkeypatch.setattr(device, "COMPILED_FOR", set())
    assert_agree(own, run(drawn(streams, 300), streams))


def test_a_change_in_bfloat16_is_widened_and_its_gradient_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two paths may round a change or a gradient to another neighbour, 2^-8 apart."""
    own = run(drawn(4), 4, torch.bfloat16)
    monkeypatch.setattr(device, "COMPILED_FOR", set())
    plain = run(drawn(4), 4, torch.bfloat16)
    assert max(relative_error(*pair) for pair in zip(own, plain, strict=True)) < 4e-3


def test_nan_in_one_token_stays_in_that_token() -> None:
    given = drawn(4)
    given.embedded_ND[3, 0] = torch.nan
    end_ND = run(given, 4)[0]
    assert end_ND[3].isnan().all()
    assert end_ND[torch.arange(TOKENS) != 3].isfinite().all()
