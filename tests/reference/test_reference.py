"""The references against the public implementation's vectors and against numbers worked out by hand."""

import math
import random

import pytest
import torch

from glint.config.model import ModelRecipe
from tests.reference import hybrid, rloo
from tests.reference.agreement import disagreements
from tests.reference.conftest import Vectors

FULL = ModelRecipe()
MINI = ModelRecipe(width=48, layers=3, heads=3, expert_hidden=96, experts=4, top_k=1, streams=2, window=24, stride=24, context=128)


def count(recipe: ModelRecipe, routed_experts: int | None = None) -> int:
    """Add up the parameter shapes, with only the first `routed_experts` of each layer if that is given."""
    total = 0
    for name, shape in hybrid.parameter_shapes(recipe).items():
        routed = name.split(".experts.")[1:]
        if not routed or routed_experts is None or int(routed[0].split(".")[0]) < routed_experts:
            total += math.prod(shape)
    return total


def test_matches_the_public_implementation(vectors: Vectors) -> None:
    weights = {name: weight.double().requires_grad_() for name, weight in vectors.weights.items()}
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == hybrid.parameter_shapes(vectors.recipe)
    logits, usage = hybrid.forward(weights, vectors.recipe, vectors.input_ids)
    loss = hybrid.cross_entropy(logits, vectors.target_ids)
    assert (logits - vectors.logits).abs().max() < 2e-4
    assert torch.equal(usage.float(), vectors.router_usage)
    assert loss.item() == pytest.approx(vectors.loss.item(), abs=1e-5)
    assert disagreements(hybrid.gradients(loss, weights), vectors.gradients, vectors.recipe.layers) == []


def test_parameter_counts() -> None:
    assert count(FULL) == 25_730_592
    assert count(FULL, routed_experts=FULL.top_k) == 9_805_344
    assert count(MINI) == 248_412


def test_a_count_by_hand() -> None:
    D, F, E, S, V, L = 192, 384, 8, 4, 260, 12
    layer = 2 * S + 2 * D + 4 * D * D + E * D + (E + 1) * 3 * D * F
    assert count(FULL) == V * D + L * layer + D


def test_visible_positions_by_hand() -> None:
    assert hybrid.visible_positions(0, window=2, stride=3) == [0]
    assert hybrid.visible_positions(7, window=2, stride=3) == [0, 3, 6, 7]
    assert hybrid.visible_positions(8, window=2, stride=3) == [0, 3, 6, 7, 8]


def test_rotation_by_hand() -> None:
    x = torch.tensor([[[9.0, 9.0, 9.0, 9.0], [9.0, 9.0, 9.0, 9.0], [1.0, 0.0, 0.0, 2.0]]], dtype=torch.float64)
    turned = hybrid.rotate(x, base=10000.0)[0, 2].tolist()
    assert turned == pytest.approx([math.cos(2), math.sin(2), -2 * math.sin(0.02), 2 * math.cos(0.02)])


def test_linear_attention_by_hand() -> None:
    q = torch.tensor([[[0.0], [1.0]]], dtype=torch.float64)
    k = torch.tensor([[[0.0], [2.0]]], dtype=torch.float64)
    v = torch.tensor([[[5.0], [9.0]]], dtype=torch.float64)
    # phi(k) is 1 and 3, phi(q) cancels: (1 * 5 + 3 * 9) / (1 + 3).
    assert hybrid.linear_attention(q, k, v).flatten().tolist() == pytest.approx([5.0, 8.0])


def test_linear_attention_never_divides_by_less_than_a_millionth() -> None:
    q, one = torch.tensor([[[-20.0]]], dtype=torch.float64), torch.ones(1, 1, 1, dtype=torch.float64)
    # phi(q) = exp(-20) and phi(k) = 2 weigh far less than 1e-6.
    assert hybrid.linear_attention(q, one, one).item() == pytest.approx(2 * math.exp(-20) / 1e-6)


def test_sparse_attention_by_hand() -> None:
    q = torch.tensor([[[1.0], [1.0], [1.0]]], dtype=torch.float64)
    k = torch.tensor([[[0.0], [50.0], [math.log(3)]]], dtype=torch.float64)
    v = torch.tensor([[[4.0], [100.0], [8.0]]], dtype=torch.float64)
    # Position 2 with window 1 and stride 3 sees 0 and itself, weights 1/4 and 3/4.
    attended = hybrid.sparse_attention(q, k, v, window=1, stride=3).flatten().tolist()
    assert attended == pytest.approx([4.0, 100.0, 7.0])


def test_balance_loss_by_hand() -> None:
    assert hybrid.balance_loss(torch.full((3, 4), 0.25)).item() == 0
    # Averaged over layers the usage is 3/4 and 1/4: 2 * mean(1/16, 1/16).
    assert hybrid.balance_loss(torch.tensor([[1.0, 0.0], [0.5, 0.5]])).item() == pytest.approx(0.125)


def test_leave_one_out_by_hand() -> None:
    assert rloo.advantages([1.0, 0.0, -0.1, 0.5], "leave_one_out") == pytest.approx([1 - 0.4 / 3, -1.4 / 3, -0.1 - 1.5 / 3, 0.5 - 0.9 / 3])


def test_leave_one_out_is_own_reward_minus_the_mean_of_the_others() -> None:
    rewards = [random.Random(7).choice([1.0, 0.0, -0.1]) for _ in range(16)]
    total = sum(rewards)
    assert rloo.advantages(rewards, "leave_one_out") == pytest.approx([r - (total - r) / (len(rewards) - 1) for r in rewards])


def test_other_baselines_by_hand() -> None:
    assert rloo.advantages([3.0, 1.0], "none") == [3.0, 1.0]
    assert rloo.advantages([3.0, 1.0], "group_mean") == [1.0, -1.0]
    assert rloo.advantages([3.0, 1.0], "group_normalised", ddof=0, epsilon=1.0) == [0.5, -0.5]
    assert rloo.advantages([3.0, 1.0], "group_normalised", ddof=1) == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)])


@pytest.mark.parametrize(("odd", "plain"), [(-0.1, -0.10), (1.0, 1.0)])
def test_dividing_by_the_deviation_loses_the_ratio_of_penalty_and_success(odd: float, plain: float) -> None:
    rewards = [odd] + [0.0] * 15
    assert rloo.advantages(rewards, "leave_one_out")[0] == pytest.approx(plain)
    assert rloo.advantages(rewards, "group_normalised", ddof=1)[0] == pytest.approx(math.copysign(3.75, odd))
    assert rloo.advantages(rewards, "group_normalised", ddof=0)[0] == pytest.approx(math.copysign(math.sqrt(15), odd))


def test_response_mask_keeps_the_stop_token_and_drops_padding() -> None:
    newline, eos = 14, 2
    parsed = rloo.Sample(prompt=[1, 50], response=[60, newline])
    stopped = rloo.Sample(prompt=[1, 50], response=[60, 61, eos])
    assert rloo.response_mask(parsed, padded_length=5) == [False, False, True, True, False]
    assert rloo.response_mask(stopped, padded_length=5) == [False, False, True, True, True]


def test_a_token_is_scored_by_the_logits_before_it() -> None:
    certain = torch.full((4, 6), -1e9, dtype=torch.float64)
    ids = [1, 5, 4, 2]
    for t in range(1, 4):
        certain[t - 1, ids[t]] = 0
    assert rloo.response_log_probs(certain, rloo.Sample(ids[:2], ids[2:]), temperature=1.0).tolist() == [0.0, 0.0]


def test_temperature_divides_the_logits() -> None:
    logits = torch.tensor([[0.0, math.log(2)], [0.0, 0.0]], dtype=torch.float64)
    sample = rloo.Sample(prompt=[0], response=[1])
    assert rloo.response_log_probs(logits, sample, temperature=1.0).item() == pytest.approx(math.log(2 / 3))
    assert rloo.response_log_probs(logits, sample, temperature=0.5).item() == pytest.approx(math.log(4 / 5))


def test_ids_that_are_never_sampled_have_no_share() -> None:
    logits = torch.tensor([[5.0, 0.0, math.log(3)], [0.0, 0.0, 0.0]], dtype=torch.float64)
    sample = rloo.Sample(prompt=[0], response=[2])
    assert rloo.response_log_probs(logits, sample, temperature=1.0, never_sampled=(0,)).item() == pytest.approx(math.log(3 / 4))


@pytest.mark.parametrize(("length", "loss"), [("token_mean", -0.5), ("sum", 3.5), ("batch_tokens", 1.75)])
def test_loss_by_hand(length: rloo.Length, loss: float) -> None:
    log_probs = [torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64), torch.tensor([-5.0], dtype=torch.float64)]
    # Sums -6 and -5, advantages 2 and -1: token_mean -(2*-2 + 5)/2 = -0.5, sum -(2*-6 + 5)/2 = 3.5, batch_tokens -(2*-6 + 5)/4 = 1.75.
    assert rloo.policy_loss(log_probs, [2.0, -1.0], length).item() == pytest.approx(loss)


def test_kl_estimate_and_its_gradient_by_hand() -> None:
    now = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    start = torch.tensor([-1.5, -2.0], dtype=torch.float64)
    estimate = rloo.kl_k3([now], [start])
    assert estimate.item() == pytest.approx((math.exp(-0.5) - 1 + 0.5) / 2)
    # d/dlog p of exp(r) - 1 - r is 1 - exp(r): pulls log p back to the start, and is 0 only there.
    assert torch.autograd.grad(estimate, now)[0].tolist() == pytest.approx([(1 - math.exp(-0.5)) / 2, 0.0])


def test_kl_estimate_is_unbiased() -> None:
    now, start = torch.tensor([0.7, 0.2, 0.1]).double().log(), torch.tensor([0.3, 0.3, 0.4]).double().log()
    expected = sum(now[a].exp() * rloo.kl_k3([now[a : a + 1]], [start[a : a + 1]]) for a in range(3))
    assert float(expected) == pytest.approx(float((now.exp() * (now - start)).sum()))
