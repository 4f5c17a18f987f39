"""The sigmoid router and clamped experts against float64 formulas, against the library, and the rule that balances them."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from glint.model.sigmoid_moe import SigmoidMoE
from tests.mechanisms import formulas, library_names
from tests.mechanisms.weights import WIDTH, doubles, generator, gradients, largest_disagreement, library_config, randomise
from tests.reference.agreement import relative_error

HIDDEN, EXPERTS, TOP_K, TOKENS = 32, 4, 2, 57


def moe(seed: int = 0) -> SigmoidMoE:
    """Weights so large that gates and values pass the clamps, and a bias that changes choices."""
    return randomise(SigmoidMoE(WIDTH, HIDDEN, EXPERTS, TOP_K), seed, gain=3)


def tokens(count: int = TOKENS) -> Tensor:
    return 2 * torch.randn(count, WIDTH, generator=generator(1))


def test_output_and_gradients_match_the_formulas() -> None:
    module, x_ND = moe(), tokens()
    weights, probe = doubles(module), torch.randn(TOKENS, WIDTH, generator=generator(2))
    found, usage = module(x_ND)
    expected, chosen = formulas.sigmoid_moe(weights, x_ND.double(), TOP_K)
    assert relative_error(found, expected) < 1e-6
    counts = [sum(e in experts for experts in chosen) for e in range(EXPERTS)]
    assert usage.tolist() == pytest.approx([count / (TOP_K * TOKENS) for count in counts])
    own = gradients((found * probe).sum(), dict(module.named_parameters()))
    assert largest_disagreement(own, gradients((expected * probe).sum(), weights)) < 1e-4


def test_the_comparison_notices_missing_clamps_and_a_bias_without_effect() -> None:
    module, x_ND = moe(), tokens()
    found, weights = module(x_ND)[0], doubles(module)
    unclamped, chosen = formulas.sigmoid_moe(weights, x_ND.double(), TOP_K, limit=math.inf)
    assert (found - unclamped).abs().max() > 0.3
    _, unbiased = formulas.sigmoid_moe(weights | {"bias": torch.zeros(EXPERTS)}, x_ND.double(), TOP_K)
    assert sum(a != b for a, b in zip(chosen, unbiased, strict=True)) > TOKENS / 5


def test_tokens_do_not_see_each_other() -> None:
    module, x_ND = moe(), tokens()
    together = module(x_ND)[0]
    assert all(relative_error(module(x[None])[0], together[n : n + 1]) < 1e-6 for n, x in enumerate(x_ND))


def test_bf16_products_stay_near() -> None:
    module, x_ND = moe(), tokens().bfloat16()
    low = module(x_ND)[0]
    assert low.dtype == torch.float32
    assert relative_error(low, module(x_ND.float())[0]) < 0.02


def test_an_expert_without_tokens_has_no_gradient_and_no_share() -> None:
    module, x_ND = moe(), tokens()
    module.bias[2] = -9.0
    output, usage = module(x_ND)
    assert usage[2] == 0
    found = gradients(output.sum(), dict(module.named_parameters()))
    assert found["up"][2].abs().max() == 0
    assert found["up"][1].abs().max() > 0


def test_saturated_scores_are_equal_and_go_to_the_lowest_expert() -> None:
    module = moe()
    module.bias.zero_()
    with torch.no_grad():
        module.router.fill_(1.0)
    weights, experts = module.route(torch.full((1, WIDTH), 5.0))
    assert experts.tolist() == [[0, 1]]
    assert weights.tolist() == [[1.25, 1.25]]


def test_balancing_by_hand() -> None:
    module = SigmoidMoE(WIDTH, HIDDEN, EXPERTS, TOP_K)
    module.balance(torch.tensor([0.4, 0.25, 0.25, 0.1]))
    module.balance(torch.tensor([0.4, 0.3, 0.2, 0.1]))
    assert module.bias.tolist() == pytest.approx([-0.002, -0.001, 0.001, 0.002])


def test_balancing_levels_the_load() -> None:
    module, x_ND = moe(), tokens(200)
    module.bias.copy_(torch.tensor([0.5, 0.0, 0.0, -0.5]))
    before = module(x_ND)[1]
    for _ in range(800):
        module.balance(module.route(x_ND)[1].flatten().bincount(minlength=EXPERTS) / (TOP_K * len(x_ND)))
    after = module(x_ND)[1]
    assert before.std() > 0.1
    assert after.std() < 0.01


def test_the_bias_is_saved_but_not_trained() -> None:
    module = moe()
    assert "bias" in module.state_dict()
    assert "bias" not in dict(module.named_parameters())


def test_matches_the_library(library: Any) -> None:
    module, x_ND = moe(), tokens().requires_grad_()
    other = library.Glm5NextTextMoE(library_config(library))
    other.load_state_dict(library_names.moe(dict(module.state_dict())))
    found, expected = module(x_ND)[0], other(x_ND[None])[0]
    assert expected.abs().max() > 8
    assert relative_error(found, expected) < 1e-6
    probe = torch.randn(found.shape, generator=generator(3))
    (own,), (theirs,) = (torch.autograd.grad((x * probe).sum(), [x_ND]) for x in (found, expected))
    assert relative_error(own, theirs) < 1e-5
