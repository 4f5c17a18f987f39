"""Kimi Delta Attention against float64 formulas, against the library, against itself in its other forms."""

from typing import Any

import pytest
import torch
from torch import Tensor

from glint import device
from glint.model import kda
from glint.model.decoder import Decoder
from glint.model.kda import KDAState, KimiDeltaAttention, chunked, recurrent
from glint.model.kernels import padded
from glint.model.layout import Layout
from tests.mechanisms import formulas
from tests.mechanisms.held import HeldAttention
from tests.mechanisms.weights import (
    HEADS,
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


@pytest.fixture(params=["compiled", "formulas"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test run what a CPU runs, and what other devices run."""
    if request.param == "formulas":
        monkeypatch.setattr(device, "COMPILED_FOR", set())


either_way = pytest.mark.usefixtures("way")
of_either_size = pytest.mark.parametrize("width", [WIDTH, 40])
"""Heads of 16 channels fill the registers of the compiled loops, heads of 10 do not."""


def layer(width: int = WIDTH, seed: int = 0) -> HeldAttention[KimiDeltaAttention]:
    return randomise(HeldAttention(KimiDeltaAttention(recipe(width=width))), seed)


def tokens(count: int, seed: int = 1, width: int = WIDTH) -> Tensor:
    return torch.randn(count, width, generator=generator(seed))


def empty(rows: int, like: Tensor) -> KDAState:
    """Return the state of rows before their first token."""
    width = like.shape[1]
    size = width // HEADS
    s_BHKV = torch.zeros(rows, HEADS, size, padded(size) if device.compiles(like.device) else size)
    return KDAState(s_BHKV, like.new_zeros(rows, 3, 3 * width))


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


@either_way
@of_either_size
def test_forward_and_gradients_match_the_formulas(width: int) -> None:
    module, h_ND = layer(width), tokens(ODD, width=width)
    weights, probe = doubles(module), torch.randn(ODD, width, generator=generator(3))
    found, expected = module(h_ND, Layout((ODD,))), formulas.kda(weights, h_ND.double())
    assert (found - expected).abs().max() < 1e-5
    own = gradients((found * probe).sum(), dict(module.named_parameters()))
    assert largest_disagreement(own, gradients((expected * probe).sum(), weights)) < 1e-4


@either_way
@of_either_size
def test_rows_of_any_length_match_the_formulas_after_a_shared_prompt(width: int) -> None:
    module, lengths, prompt = layer(width), (5, 18, 1), 7
    h_ND = tokens(prompt + sum(lengths), width=width).requires_grad_()
    exact_ND, probe = h_ND.detach().double().requires_grad_(), torch.randn(h_ND.shape, generator=generator(3))
    weights, rows = doubles(module), exact_ND.split([prompt, *lengths])
    whole = [formulas.kda(weights, torch.cat([rows[0], row])) for row in rows[1:]]
    found, expected = module(h_ND, Layout(lengths, prompt)), torch.cat([whole[0][:prompt], *(row[prompt:] for row in whole)])
    assert (found - expected).abs().max() < 1e-5
    own = gradients((found * probe).sum(), dict(module.named_parameters()) | {"h": h_ND})
    assert largest_disagreement(own, gradients((expected * probe).sum(), weights | {"h": exact_ND})) < 1e-4


@either_way
@of_either_size
def test_a_step_equals_the_forward_at_every_position(width: int) -> None:
    module, h_ND = layer(width), tokens(2 * ODD, width=width)
    expected = module(h_ND, Layout((ODD, ODD))).view(2, ODD, width)
    state = empty(2, h_ND)
    for t in range(ODD):
        assert (module.step(h_ND.view(2, ODD, width)[:, t], torch.full((2,), t), state) - expected[:, t]).abs().max() < 1e-5, t


@either_way
@of_either_size
@pytest.mark.parametrize("prompt", [0, 2])
def test_a_prefill_leaves_the_state_that_steps_would(prompt: int, width: int) -> None:
    module, lengths = layer(width), (1, 20, 4)
    h_ND = tokens(prompt + sum(lengths), width=width)
    states: list[KDAState] = []
    module(h_ND, Layout(lengths, prompt), states)
    rows = h_ND.split([prompt, *lengths])
    for index, row in enumerate(rows[1:]):
        stepped = empty(1, h_ND)
        for t, token in enumerate(torch.cat([rows[0], row])):
            module.step(token[None], torch.tensor([t]), stepped)
        left = states[0].select(torch.tensor([index]))
        assert left.s_BHKV.shape == stepped.s_BHKV.shape
        assert (left.s_BHKV - stepped.s_BHKV)[..., : width // HEADS].abs().max() < 1e-5
        assert (left.inputs_BJX - stepped.inputs_BJX).abs().max() < 1e-5


@either_way
def test_the_state_is_one_matrix_a_head_and_three_inputs() -> None:
    states: list[KDAState] = []
    layer()(tokens(24), Layout((1, 20, 3)), states)
    assert states[0].s_BHKV.shape == (3, HEADS, SIZE, SIZE)
    assert states[0].inputs_BJX.shape == (3, 3, 3 * HEADS * SIZE)


def test_initial_decays_are_slow_and_the_rate_is_one() -> None:
    block = Decoder(recipe(width=256)).initialise(generator(0)).blocks[0]
    steps = torch.nn.functional.softplus(block.get_parameter("decay_bias"))
    assert steps.min() > 0.999e-3
    assert steps.max() < 0.1001
    assert torch.equal(block.get_parameter("decay_log_rate"), torch.zeros(HEADS))
    assert block.get_parameter("qkv").std().item() == pytest.approx(0.02, rel=0.02)


@either_way
def test_bf16_products_stay_near() -> None:
    module, h_ND = layer(), tokens(ODD)
    low = module(h_ND.bfloat16(), Layout((ODD,)))
    assert low.dtype == torch.bfloat16
    assert relative_error(low, module(h_ND, Layout((ODD,)))) < 0.03
    state = empty(1, low)
    stepped = torch.cat([module.step(h[None].bfloat16(), torch.tensor([t]), state) for t, h in enumerate(h_ND)])
    assert relative_error(stepped, low) < 0.01


@either_way
@pytest.mark.parametrize("length", [64, 101])
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
