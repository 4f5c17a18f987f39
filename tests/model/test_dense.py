"""Dense attention and the dense feed-forward against float64, with and without a shared prompt; all combinations alone and together."""

import pytest
import torch
from torch import Tensor

from glint import device
from glint.check import spread
from glint.config.model import ModelRecipe
from glint.model.decoder import Decoder, count_parameters
from glint.model.dense import SLOT_BLOCK, dense_attention
from glint.model.feedforward import activated
from glint.model.layout import Layout, Rows
from glint.model.rotary import rotary, rotate, rotate_halves
from tests.model.shapes import COMBINATIONS, SMALL
from tests.reference.agreement import relative_error

HEADS, WIDTH = 2, 12
LAYOUTS = [Layout((7,)), Layout((9, 1, 5)), Layout((4, 6, 2), prompt=5), Layout((3, 3), prompt=1)]


@pytest.fixture(autouse=True, params=["compiled", "formulas"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs what a CPU runs, and what other devices run."""
    if request.param == "formulas":
        monkeypatch.setattr(device, "COMPILED_FOR", set())


def row_attention(qkv_TX: Tensor) -> Tensor:
    """Return dense attention over one whole row in float64, a head, a query and a key at a time."""
    size = WIDTH // HEADS
    q, k, v = (part.view(-1, HEADS, size) for part in qkv_TX.split(WIDTH, dim=1))

    def turned(x: Tensor, t: int) -> Tensor:
        angles = torch.tensor([t * 10000.0 ** (-2 * j / size) for j in range(size // 2)], dtype=torch.float64)
        a, b = x[: size // 2], x[size // 2 :]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()])

    rows = []
    for t in range(len(q)):
        heads = []
        for h in range(HEADS):
            scores = torch.stack([turned(q[t, h], t) @ turned(k[s, h], s) for s in range(t + 1)]) * size**-0.5
            heads.append(torch.softmax(scores, 0) @ v[: t + 1, h])
        rows.append(torch.cat(heads))
    return torch.stack(rows)


def by_rows(qkv_NX: Tensor, layout: Layout) -> Tensor:
    """Return what `dense_attention` has to give, each row read with its own copy of the prompt."""
    prompt, *rows = qkv_NX.split([layout.prompt, *layout.lengths])
    outputs = [row_attention(torch.cat([prompt, row]))[layout.prompt :] for row in rows]
    return torch.cat([row_attention(prompt), *outputs] if layout.prompt else outputs)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_values_and_gradients_are_those_of_float64(layout: Layout) -> None:
    generator = torch.Generator().manual_seed(3)
    qkv = torch.randn(layout.tokens, 3 * WIDTH, generator=generator).requires_grad_()
    wanted = torch.randn(layout.tokens, WIDTH, generator=generator)
    rows = Rows(layout, rotary(20, WIDTH // HEADS, 10000.0, torch.device("cpu")))
    found = dense_attention(qkv, rows, HEADS)
    exact = qkv.detach().double().requires_grad_()
    known = by_rows(exact, layout)
    assert relative_error(found, known) < 1e-5
    (gradient,) = torch.autograd.grad((found * wanted).sum(), qkv)
    (known_gradient,) = torch.autograd.grad((known * wanted.double()).sum(), exact)
    assert relative_error(gradient, known_gradient) < 1e-5


def test_both_orders_of_pairs_turn_alike() -> None:
    x = torch.randn(4, 6)
    angles = rotary(4, 6, 100.0, torch.device("cpu")).angles
    halves = torch.cat([x[:, 0::2], x[:, 1::2]], 1)
    turned = rotate(x, angles)
    assert torch.allclose(rotate_halves(halves, angles), torch.cat([turned[:, 0::2], turned[:, 1::2]], 1), atol=1e-6)


@pytest.mark.parametrize("limit", [None, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gate_and_its_gradient_are_those_of_clamped_float64(limit: float | None, dtype: torch.dtype) -> None:
    """A gate or value that is the limit, or its negative, still has a gradient."""
    x = torch.randn(5, 14, generator=torch.Generator().manual_seed(1)) * 3
    x[0] = torch.tensor([2.0, -2.0, 2.0, 1.0, 9.0, -9.0, 0.5, 1.0, 1.0, 2.0, -2.0, 1.0, 1.0, -9.0])
    x = x.to(dtype).requires_grad_()
    exact = x.detach().double().requires_grad_()
    gate, value = exact.chunk(2, -1)
    if limit is not None:
        gate, value = gate.clamp(max=limit), value.clamp(-limit, limit)
    known, found = gate / (1 + torch.exp(-gate)) * value, activated(x, limit)
    assert found.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 0.01
    assert relative_error(found, known) < tolerance
    weights = torch.randn(5, 7)
    gradient, wanted = (torch.autograd.grad((y * weights.to(y.dtype)).sum(), z)[0] for y, z in ((found, x), (known, exact)))
    assert relative_error(gradient, wanted) < tolerance
    assert torch.equal(gradient == 0, wanted == 0)
    assert bool((wanted == 0).any()) == (limit is not None)


@pytest.mark.parametrize("limit", [None, 2.0])
def test_a_gate_or_value_that_is_nan_stays_nan(limit: float | None) -> None:
    x = torch.ones(1, 6)
    x[0, 0] = x[0, 4] = float("nan")
    assert activated(x, limit).isnan().tolist() == [[True, True, False]]


@pytest.mark.parametrize("name", COMBINATIONS)
def test_rows_that_share_a_prompt_are_what_they_are_alone(name: str) -> None:
    model = spread(COMBINATIONS[name])
    prompt, tails = [5, 80, 7, 9, 200, 31], [[1, 2, 3], [9] * 11, [70, 71, 72, 73, 74, 75, 76]]
    with torch.no_grad():
        ids = torch.tensor(prompt + [token for tail in tails for token in tail])
        shared = model(ids, Layout(tuple(map(len, tails)), len(prompt))).final_ND
        alone = [model(torch.tensor(prompt + tail), Layout((len(prompt) + len(tail),))).final_ND for tail in tails]
    atol = 1e-4 if model.recipe.linear == "kda" else 1e-5  # its chunks begin with the rows: other tokens are summed together
    assert torch.allclose(shared[: len(prompt)], alone[0][: len(prompt)], atol=atol)
    assert torch.allclose(shared[len(prompt) :], torch.cat([row[len(prompt) :] for row in alone]), atol=atol)


def test_a_cache_grows_and_its_rows_go_on_by_themselves() -> None:
    recipe = ModelRecipe.model_validate(SMALL | {"linear": "none", "sparse": "dense", "context": 3 * SLOT_BLOCK})
    model = spread(recipe)
    rows = [[(7 * t + 3 * r) % 250 for t in range(length)] for r, length in enumerate((SLOT_BLOCK - 1, 2))]
    logits, cache = model.prefill(rows)
    for _ in range(SLOT_BLOCK + 3):
        newest = logits.argmax(-1)
        rows = [[*row, token] for row, token in zip(rows, newest.tolist(), strict=True)]
        logits = model.step(newest, cache)
    with torch.no_grad():
        full = [model.logits(model(torch.tensor(row), Layout((len(row),))).final_ND)[-1] for row in rows]
    assert torch.allclose(logits, torch.stack(full), atol=1e-4)
    twin = cache.select(torch.tensor([1, 1, 0]))
    assert torch.allclose(model.step(torch.tensor([4, 4, 9]), twin), model.step(torch.tensor([9, 4]), cache)[[1, 1, 0]], atol=1e-5)


def test_a_dense_feed_forward_is_as_wide_as_the_experts_of_a_token_unless_told() -> None:
    recipe = ModelRecipe(ffn="dense")
    assert (recipe.dense_hidden, ModelRecipe(ffn="dense", ffn_hidden=100).dense_hidden) == (3 * 384, 100)
    with torch.device("meta"):
        dense, mixture = Decoder(recipe), Decoder(ModelRecipe())
    router = 12 * 8 * 192
    assert count_parameters(dense) == count_parameters(dense, active=True) == count_parameters(mixture, active=True) - router
