"""Kimi Delta Attention against float64 formulas, against the library, against itself in its other forms."""

from typing import Any

import pytest
import torch
from torch import Tensor

from glint.model import kda
from glint.model.decoder import Decoder
from glint.model.kda import KDAState, KimiDeltaAttention, chunked, recurrent
from glint.model.layout import Layout
from tests.mechanisms import formulas
from tests.mechanisms.held import HeldAttention
from tests.mechanisms.weights import (
    HEADS,
    RECIPE,
    SIZE,
    WIDTH,
    doubles,
    generator,
    gradients,
    largest_disagreement,
    library_config,
    library_names,
    randomise,
    recipe,
)
from tests.reference.agreement import relative_error

ODD = 39
"""Two whole chunks and a broken one."""


def layer(seed: int = 0) -> HeldAttention[KimiDeltaAttention]:
    return randomise(HeldAttention(KimiDeltaAttention(RECIPE)), seed)


def tokens(count: int, seed: int = 1) -> Tensor:
    return torch.randn(count, WIDTH, generator=generator(seed))


def empty(rows: int, like: Tensor) -> KDAState:
    """Return the state before the first token."""
    return KDAState(torch.zeros(rows, HEADS, SIZE, SIZE), like.new_zeros(rows, 3, 3 * WIDTH))


@pytest.fixture(params=["compiled", "formulas"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with the loops of a CPU, and with the formulas of other devices."""
    if request.param == "formulas":
        monkeypatch.setattr(kda, "compiles", lambda _: False)


def core_inputs(length: int, reach: float, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return q, k, v, g, beta and S for 2 rows of 3 heads; the larger `reach`, the more log decays lie near 0 and -5."""
    draws = generator(2)
    q, k, v, z = (torch.randn(2, length, 3, 8, generator=draws) for _ in range(4))
    beta, s = torch.randn(2, length, 3, generator=draws).sigmoid(), torch.randn(2, 3, 8, 8, generator=draws)
    inputs = (kda.unit_length(q), kda.unit_length(k), v, -5 * torch.sigmoid(reach * z), beta, s)
    return [x.to(dtype).requires_grad_() for x in inputs]


@pytest.mark.parametrize("length", [1, 15, 16, 32, ODD])
@pytest.mark.parametrize("reach", [2.0, 50.0])
def test_chunks_and_the_recurrence_agree(length: int, reach: float) -> None:
    forms = []
    for form, dtype in ((chunked, torch.float32), (recurrent, torch.float64)):
        inputs = core_inputs(length, reach, dtype)
        outputs, s = form(*inputs)
        weights = torch.linspace(-1, 1, outputs.numel(), dtype=dtype).view(outputs.shape)
        forms.append((outputs, s, torch.autograd.grad((weights * outputs).sum() + s.square().sum(), inputs)))
    (outputs, s, grads), (exact, exact_s, exact_grads) = forms
    assert (outputs - exact).abs().max() < 1e-5
    assert (s - exact_s).abs().max() < 1e-5
    assert max(relative_error(x, y) for x, y in zip(grads, exact_grads, strict=True)) < 1e-4


def test_chunks_bear_the_strongest_decay_everywhere() -> None:
    q, k, v, _, beta, s = core_inputs(48, 1.0)
    g = torch.full_like(q, -5.0).requires_grad_()
    outputs, _ = chunked(q, k, v, g, beta, s)
    exact, _ = recurrent(q, k, v, g, beta, s)
    assert (outputs - exact).abs().max() < 1e-5
    assert all(x.isfinite().all() for x in torch.autograd.grad(outputs.square().sum(), (q, k, v, g, beta, s)))


def test_one_token_by_hand() -> None:
    # S = 2 fades to 1; it answers key 1 with 1, beta 1/2 moves that half-way to 5: S = 3, and the query 10 reads 30.
    q, k, v, g = (torch.full((1, 1, 1, 1), x) for x in (10.0, 1.0, 5.0, torch.tensor(0.5).log().item()))
    outputs, s = recurrent(q, k, v, g, torch.full((1, 1, 1), 0.5), torch.full((1, 1, 1, 1), 2.0))
    assert outputs.item() == pytest.approx(30)
    assert s.item() == pytest.approx(3)


@pytest.mark.usefixtures("form")
def test_forward_and_gradients_match_the_formulas() -> None:
    module, h_ND = layer(), tokens(ODD)
    weights, probe = doubles(module), torch.randn(ODD, WIDTH, generator=generator(3))
    found, expected = module(h_ND, Layout((ODD,))), formulas.kda(weights, h_ND.double())
    assert (found - expected).abs().max() < 1e-5
    own = gradients((found * probe).sum(), dict(module.named_parameters()))
    assert largest_disagreement(own, gradients((expected * probe).sum(), weights)) < 1e-4


@pytest.mark.usefixtures("form")
def test_rows_of_any_length_match_the_formulas_after_a_shared_prompt() -> None:
    module, lengths, prompt = layer(), (5, 18, 1), 7
    h_ND = tokens(prompt + sum(lengths))
    found = module(h_ND, Layout(lengths, prompt)).split([prompt, *lengths])
    weights, rows = doubles(module), h_ND.double().split([prompt, *lengths])
    assert (found[0] - formulas.kda(weights, rows[0])).abs().max() < 1e-5
    for own, row in zip(found[1:], rows[1:], strict=True):
        assert (own - formulas.kda(weights, torch.cat([rows[0], row]))[prompt:]).abs().max() < 1e-5


@pytest.mark.usefixtures("form")
def test_a_step_equals_the_forward_at_every_position() -> None:
    module, h_ND = layer(), tokens(2 * ODD)
    expected = module(h_ND, Layout((ODD, ODD))).view(2, ODD, WIDTH)
    state = empty(2, h_ND)
    for t in range(ODD):
        assert (module.step(h_ND.view(2, ODD, WIDTH)[:, t], torch.full((2,), t), state) - expected[:, t]).abs().max() < 1e-5, t


@pytest.mark.parametrize("prompt", [0, 2])
@pytest.mark.usefixtures("form")
def test_a_prefill_leaves_the_state_that_steps_would(prompt: int) -> None:
    module, lengths = layer(), (1, 20, 4)
    h_ND = tokens(prompt + sum(lengths))
    states: list[KDAState] = []
    module(h_ND, Layout(lengths, prompt), states)
    rows = h_ND.split([prompt, *lengths])
    for index, row in enumerate(rows[1:]):
        stepped = empty(1, h_ND)
        for t, token in enumerate(torch.cat([rows[0], row])):
            module.step(token[None], torch.tensor([t]), stepped)
        left = states[0].select(torch.tensor([index]))
        assert (left.s_BHKV - stepped.s_BHKV).abs().max() < 1e-5
        assert (left.inputs_BJX - stepped.inputs_BJX).abs().max() < 1e-5


def test_the_state_is_one_matrix_a_head_and_three_inputs() -> None:
    states: list[KDAState] = []
    layer()(tokens(60), Layout((20, 20, 20)), states)
    assert states[0].s_BHKV.shape == (3, HEADS, SIZE, SIZE)
    assert states[0].inputs_BJX.shape == (3, 3, 3 * WIDTH)


@pytest.mark.parametrize("prompt", [2, 7])
def test_loops_and_formulas_have_the_same_gradients_after_a_shared_prompt(prompt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, layout = layer(), Layout((5, 18, 1), prompt)
    probe, found = torch.randn(layout.tokens, WIDTH, generator=generator(3)), []
    for compiled in (True, False):
        monkeypatch.setattr(kda, "compiles", lambda _, compiled=compiled: compiled)
        h_ND = tokens(layout.tokens).requires_grad_()
        found.append(gradients((module(h_ND, layout) * probe).sum(), dict(module.named_parameters()) | {"h": h_ND}))
    assert largest_disagreement(found[0], found[1]) < 1e-5


def test_initial_decays_are_slow_and_the_rate_is_one() -> None:
    block = Decoder(recipe(width=256)).initialise(generator(0)).blocks[0]
    steps = torch.nn.functional.softplus(block.get_parameter("decay_bias"))
    assert steps.min() > 0.999e-3
    assert steps.max() < 0.1001
    assert torch.equal(block.get_parameter("decay_log_rate"), torch.zeros(HEADS))
    assert block.get_parameter("qkv").std().item() == pytest.approx(0.02, rel=0.02)


@pytest.mark.usefixtures("form")
def test_bf16_products_stay_near() -> None:
    module, h_ND = layer(), tokens(ODD)
    low = module(h_ND.bfloat16(), Layout((ODD,)))
    assert low.dtype == torch.bfloat16
    assert relative_error(low, module(h_ND, Layout((ODD,)))) < 0.03
    state = empty(1, low)
    stepped = torch.cat([module.step(h[None].bfloat16(), torch.tensor([t]), state) for t, h in enumerate(h_ND)])
    assert relative_error(stepped, low) < 0.01


@pytest.mark.parametrize("length", [64, 101])
@pytest.mark.usefixtures("form")
def test_matches_the_library(library: Any, length: int) -> None:
    module, h_ND = layer(), tokens(2 * length).requires_grad_()
    other = library.Glm5NextTextLinearAttention(library_config(library), 0)
    other.load_state_dict(library_names(dict(module.named_parameters()), "self_attn"))
    found = module(h_ND, Layout((length, length)))
    expected = other(h_ND.view(2, length, WIDTH)).flatten(0, 1)
    assert (found - expected).abs().max() < 1e-5
    probe = torch.randn(found.shape, generator=generator(4))
    own = gradients((found * probe).sum(), dict(module.named_parameters()) | {"h": h_ND})
    theirs = gradients((expected * probe).sum(), dict(other.named_parameters()) | {"h": h_ND})
    assert largest_disagreement({"h": own.pop("h")} | library_names(own, "self_attn"), theirs) < 1e-4
