"""The sigmoid router and clamped experts against float64 formulas, against the library, and the rule that balances them."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from glint import device
from glint.model.decoder import Decoder
from glint.model.sigmoid_moe import SigmoidMixture
from tests.mechanisms import formulas
from tests.mechanisms.held import HeldFeedForward
from tests.mechanisms.weights import (
    RECIPE,
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

EXPERTS, TOP_K, TOKENS = RECIPE.experts, RECIPE.top_k, 57


@pytest.fixture(autouse=True, params=["compiled", "formulas"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs what a CPU runs, and what other devices run."""
    if request.param == "formulas":
        monkeypatch.setattr(device, "COMPILED_FOR", set())


def moe(seed: int = 4) -> HeldFeedForward[SigmoidMixture]:
    """Weights so large that gates and values pass the clamps, and a bias that changes choices but leaves no expert idle."""
    return randomise(HeldFeedForward(SigmoidMixture(RECIPE)), seed, gain=3)


def bias_of(module: HeldFeedForward[SigmoidMixture]) -> Tensor:
    return module.get_buffer("router_bias")


def tokens(count: int = TOKENS) -> Tensor:
    return 2 * torch.randn(count, WIDTH, generator=generator(1))


def test_output_and_every_gradient_match_the_formulas() -> None:
    module, x_ND, residual_ND = moe(), tokens().requires_grad_(), torch.randn(TOKENS, WIDTH, generator=generator(4)).requires_grad_()
    weights, probe = doubles(module), torch.randn(TOKENS, WIDTH, generator=generator(2))
    exact_x, exact_residual = (x.detach().double().requires_grad_() for x in (x_ND, residual_ND))
    found, usage = module(x_ND, residual_ND)
    change, chosen = formulas.sigmoid_moe(weights, exact_x, TOP_K)
    expected = exact_residual + change
    assert relative_error(found, expected) < 1e-6
    assert usage.min() > 0.1
    counts = [sum(e in experts for experts in chosen) for e in range(EXPERTS)]
    assert usage.tolist() == pytest.approx([count / (TOP_K * TOKENS) for count in counts])
    own = gradients((found * probe).sum(), dict(module.named_parameters()) | {"x": x_ND, "residual": residual_ND})
    theirs = gradients((expected * probe).sum(), weights | {"x": exact_x, "residual": exact_residual})
    assert largest_disagreement(own, theirs) < 1e-4


def test_the_comparison_notices_missing_clamps_and_a_bias_without_effect() -> None:
    module, x_ND = moe(), tokens()
    found, weights = module(x_ND)[0], doubles(module)
    unclamped, chosen = formulas.sigmoid_moe(weights, x_ND.double(), TOP_K, limit=math.inf)
    assert (found - unclamped).abs().max() > 0.3
    _, unbiased = formulas.sigmoid_moe(weights | {"router_bias": torch.zeros(EXPERTS)}, x_ND.double(), TOP_K)
    assert sum(a != b for a, b in zip(chosen, unbiased, strict=True)) > TOKENS / 5


def test_tokens_do_not_see_each_other() -> None:
    module, x_ND = moe(), tokens()
    together = module(x_ND)[0]
    assert all(relative_error(module(x[None])[0], together[n : n + 1]) < 1e-6 for n, x in enumerate(x_ND))


def test_a_step_is_the_forward_of_a_few_rows() -> None:
    module, x_ND, residual_ND = moe(), tokens(5), torch.randn(5, WIDTH, generator=generator(4))
    assert relative_error(module.mechanism.step(residual_ND, x_ND, module.weights()), module(x_ND, residual_ND)[0]) < 1e-6


def test_bf16_products_stay_near() -> None:
    module, x_ND = moe(), tokens().bfloat16()
    low = module(x_ND)[0]
    assert low.dtype == torch.float32
    assert relative_error(low, module(x_ND.float())[0]) < 0.02


def test_an_expert_without_tokens_has_no_gradient_and_no_share() -> None:
    module, x_ND = moe(), tokens()
    bias_of(module)[2] = -9.0
    output, usage = module(x_ND)
    assert usage[2] == 0
    found = gradients(output.sum(), dict(module.named_parameters()))
    assert found["up"][2].abs().max() == 0
    assert found["up"][1].abs().max() > 0


def test_saturated_scores_are_equal_and_go_to_the_lowest_expert() -> None:
    module = moe()
    bias_of(module).zero_()
    with torch.no_grad():
        module.get_parameter("router").fill_(1.0)
    weights, experts = module.mechanism.choose(torch.full((1, WIDTH), 5.0), module.weights())
    assert experts.tolist() == [[0, 1]]
    assert weights.tolist() == [[1.25, 1.25]]


def test_the_bias_decides_who_is_chosen_but_not_how_much_they_weigh() -> None:
    # Scores of one half, bar the last expert's of 3/4: it weighs three fifths of 2.5 beside any other, by whatever bias it is chosen.
    module, x_1D = moe(), torch.zeros(1, WIDTH)
    x_1D[0, 0] = 1
    with torch.no_grad():
        module.get_parameter("router").copy_(torch.zeros(EXPERTS, WIDTH))
        module.get_parameter("router")[-1, 0] = math.log(3)
    for bias, others in ((0.2, [0]), (9.0, [1])):
        bias_of(module).copy_(torch.tensor([0.0, 0.0, 0.0, bias] if others == [0] else [0.0, bias, 0.0, bias]))
        weights, experts = module.mechanism.choose(x_1D, module.weights())
        assert experts.tolist() == [[EXPERTS - 1, *others]]
        assert weights[0].tolist() == pytest.approx([1.5, 1.0])
    bias_of(module).copy_(torch.tensor([0.0, 0.0, 0.0, -9.0]))
    weights, experts = module.mechanism.choose(x_1D, module.weights())
    assert (experts.tolist(), weights.tolist()) == ([[0, 1]], [[1.25, 1.25]])


def test_balancing_by_hand() -> None:
    module = HeldFeedForward(SigmoidMixture(RECIPE))
    module.mechanism.balance(module.weights(), torch.tensor([0.4, 0.25, 0.25, 0.1]))
    module.mechanism.balance(module.weights(), torch.tensor([0.4, 0.3, 0.2, 0.1]))
    assert bias_of(module).tolist() == pytest.approx([-0.002, -0.001, 0.001, 0.002])


def test_balancing_levels_the_load() -> None:
    module, x_ND = moe(), tokens(200)
    bias_of(module).copy_(torch.tensor([0.5, 0.0, 0.0, -0.5]))
    before = module(x_ND)[1]
    for _ in range(800):
        _, experts = module.mechanism.choose(x_ND, module.weights())
        module.mechanism.balance(module.weights(), experts.flatten().bincount(minlength=EXPERTS) / (TOP_K * len(x_ND)))
    after = module(x_ND)[1]
    assert before.std() > 0.1
    assert after.std() < 0.01


def test_the_decoder_balances_the_layers_that_route() -> None:
    model = Decoder(recipe(dense_layers=2))
    model.balance(torch.tensor([[0.4, 0.25, 0.25, 0.1], [0.1, 0.1, 0.1, 0.7]]))
    biases = {name: buffer.tolist() for name, buffer in model.named_buffers()}
    assert biases == {
        "blocks.2.router_bias": pytest.approx([-0.001, 0, 0, 0.001]),
        "blocks.3.router_bias": pytest.approx([0.001, 0.001, 0.001, -0.001]),
    }


def test_the_bias_is_saved_but_not_trained() -> None:
    module = moe()
    assert "router_bias" in module.state_dict()
    assert "router_bias" not in dict(module.named_parameters())


def test_matches_the_library(library: Any) -> None:
    module, x_ND = moe(), tokens().requires_grad_()
    other = library.Glm5NextTextMoE(library_config(library))
    other.load_state_dict(library_names(module.state_dict(), "mlp"))
    found, expected = module(x_ND)[0], other(x_ND[None])[0]
    assert expected.abs().max() > 8
    assert relative_error(found, expected) < 1e-6
    probe = torch.randn(found.shape, generator=generator(3))
    (own,), (theirs,) = (torch.autograd.grad((x * probe).sum(), [x_ND]) for x in (found, expected))
    assert relative_error(own, theirs) < 1e-5
