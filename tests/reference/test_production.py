"""The production decoder, in float32, against the float64 reference and the public implementation's vectors."""

import copy
from dataclasses import dataclass
from functools import cache, cached_property

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glint import device
from glint.config.model import ModelRecipe
from glint.model import attention
from glint.model.decoder import Cache, Decoder, Hidden, count_parameters
from glint.model.layout import Layout, Rows
from glint.model.rotary import rotary
from tests.reference import hybrid
from tests.reference.adapter import decoder, gradients, in_reference_shape
from tests.reference.agreement import disagreements, relative_error
from tests.reference.conftest import Vectors

SHAPES = {
    "one stream, top 1": (
        ModelRecipe(
            vocabulary=260, width=12, layers=4, heads=3, experts=3, top_k=1, expert_hidden=5, streams=1, window=3, stride=5, context=40
        ),
        (17, 11, 1),
    ),
    "two streams, top 2": (
        ModelRecipe(
            vocabulary=261, width=16, layers=5, heads=2, experts=5, top_k=2, expert_hidden=7, streams=2, window=4, stride=3, context=40
        ),
        (13, 13),
    ),
    "four streams, two sparse layers": (
        ModelRecipe(
            vocabulary=263, width=24, layers=8, heads=4, experts=6, top_k=2, expert_hidden=11, streams=4, window=7, stride=4, context=40
        ),
        (23, 9, 31, 2),
    ),
    "one linear layer, one head": (
        ModelRecipe(
            vocabulary=260, width=6, layers=1, heads=1, experts=4, top_k=1, expert_hidden=3, streams=4, window=2, stride=2, context=40
        ),
        (5, 7),
    ),
    "one expert": (
        ModelRecipe(
            vocabulary=260, width=8, layers=4, heads=2, experts=1, top_k=1, expert_hidden=9, streams=2, window=1, stride=40, context=40
        ),
        (19, 3),
    ),
}


@dataclass
class Case:
    """Random weights of one shape, in both forms, and rows of unequal length."""

    recipe: ModelRecipe
    weights: hybrid.Weights
    model: Decoder
    rows: list[list[int]]

    @cached_property
    def expected(self) -> list[tuple[Tensor, Tensor]]:
        """The reference's answer for the case's own rows."""
        return self.reference(self.rows)

    @cached_property
    def known_gradients(self) -> hybrid.Weights:
        """The reference's gradients of the cross-entropy of all tokens of the case's own rows."""
        logits = torch.cat([row for row, _ in self.expected])
        return hybrid.gradients(cross_entropy(logits, targets(logits)), self.weights)

    def reference(self, rows: list[list[int]]) -> list[tuple[Tensor, Tensor]]:
        """Return the reference's logits [T, V] and expert counts [L, E] of each row, read alone."""
        outputs = []
        for row in rows:
            logits, usage = hybrid.forward(self.weights, self.recipe, torch.tensor([row]))
            outputs.append((logits[0], (usage * len(row) * self.recipe.top_k).round()))
        return outputs

    def production(self, rows: list[list[int]], prompt: int = 0, head_only: bool = False) -> Hidden:
        """Run the production forward on packed rows; the first `prompt` tokens are those of rows[0], which all rows share."""
        ids = rows[0][:prompt] + [token for row in rows for token in row[prompt:]]
        layout = Layout(tuple(len(row) - prompt for row in rows), prompt)
        hidden: Hidden = self.model(torch.tensor(ids), layout, head_only=head_only)
        return hidden


@cache
def build(shape: str) -> Case:
    recipe, lengths = SHAPES[shape]
    generator = torch.Generator().manual_seed(20240611)
    weights = hybrid.random_weights(recipe, generator)
    rows = [torch.randint(0, recipe.vocabulary, (length,), generator=generator).tolist() for length in lengths]
    model = decoder(weights, recipe)
    return Case(recipe, {name: weight.requires_grad_() for name, weight in weights.items()}, model, rows)


@pytest.fixture(autouse=True, params=["compiled", "formulas"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs what a CPU runs, and what other devices run."""
    if request.param == "formulas":
        monkeypatch.setattr(device, "COMPILED_FOR", set())


@pytest.fixture(params=list(SHAPES))
def case(request: pytest.FixtureRequest) -> Case:
    return build(request.param)


def targets(logits: Tensor) -> Tensor:
    """Return arbitrary targets."""
    return (torch.arange(len(logits)) * 5 + 3) % logits.shape[1]


def wrong_gradients(found: hybrid.Weights, known: hybrid.Weights, tolerance: float = 1e-3) -> list[str]:
    """List the gradients in `found` that differ from `known`; some are 0 by construction (equal streams, a single choice)."""
    wrong = []
    for name, gradient in found.items():
        norm = known[name].norm()
        error = float(gradient.norm()) * 1e3 if norm < 1e-12 else relative_error(gradient, known[name])
        if not error <= tolerance:
            wrong.append(f"{name}: {error:.1e}")
    return wrong


def test_forward_usage_and_gradients(case: Case) -> None:
    hidden = case.production(case.rows)
    logits = case.model.logits(hidden.final_ND)
    expected, counts = zip(*case.expected, strict=True)
    reference, total = torch.cat(expected), torch.stack(counts).sum(dim=0)
    assert (logits - reference).abs().max() < 1e-4
    assert torch.allclose(hidden.usage_LE.double(), total / total.sum(dim=1, keepdim=True), atol=1e-7, rtol=0)
    found = gradients(cross_entropy(logits, targets(logits)), case.model)
    assert found.keys() == case.known_gradients.keys()
    assert wrong_gradients(found, case.known_gradients) == []


def test_padded_rows_give_what_packed_rows_give(case: Case) -> None:
    longest = max(map(len, case.rows))
    padded = torch.tensor([row + [0] * (longest - len(row)) for row in case.rows])
    reference, _ = hybrid.forward(case.weights, case.recipe, padded)
    real = torch.cat([logits[: len(row)] for logits, row in zip(reference, case.rows, strict=True)])
    assert (case.model.logits(case.production(case.rows).final_ND) - real).abs().max() < 1e-4


def test_vectors_of_the_public_implementation(vectors: Vectors) -> None:
    model = decoder(vectors.weights, vectors.recipe)
    rows, positions = vectors.input_ids.shape
    hidden = model(vectors.input_ids.flatten(), Layout((positions,) * rows))
    logits = model.logits(hidden.final_ND)
    loss = cross_entropy(logits, vectors.target_ids.flatten())
    assert (logits.view_as(vectors.logits) - vectors.logits).abs().max() < 2e-4
    assert torch.equal(hidden.usage_LE, vectors.router_usage)
    assert loss.item() == pytest.approx(vectors.loss.item(), abs=1e-5)
    assert disagreements(gradients(loss, model), vectors.gradients, vectors.recipe.layers) == []


@pytest.mark.parametrize("prompt_length", [1, 6, 10])
@pytest.mark.parametrize("shape", ["one stream, top 1", "four streams, two sparse layers"])
def test_rows_that_share_a_prompt(shape: str, prompt_length: int) -> None:
    case = build(shape)
    prompt = [(7 * position + 1) % 260 for position in range(prompt_length)]
    rows = [prompt + row for row in case.rows if prompt_length + len(row) <= case.recipe.context]
    hidden = case.production(rows, prompt_length)
    logits = case.model.logits(hidden.final_ND)
    (alone, prompt_counts), *_ = case.reference([prompt])
    read, counts = zip(*case.reference(rows), strict=True)
    reference = torch.cat([alone, *(row[prompt_length:] for row in read)])
    total = torch.stack(counts).sum(dim=0) - (len(rows) - 1) * prompt_counts
    assert (logits - reference).abs().max() < 1e-4
    assert torch.allclose(hidden.usage_LE.double(), total / total.sum(dim=1, keepdim=True), atol=1e-7, rtol=0)
    known = hybrid.gradients(cross_entropy(reference, targets(reference)), case.weights)
    assert wrong_gradients(gradients(cross_entropy(logits, targets(logits)), case.model), known) == []


def test_head_only_cuts_the_path_through_the_input_embedding(case: Case) -> None:
    logits = case.model.logits(case.production(case.rows, head_only=True).final_ND)
    head = case.weights["embedding.weight"]
    cut = {**case.weights, "embedding.weight": head.detach()}
    reference = torch.cat([hybrid.hidden(cut, case.recipe, torch.tensor([row]))[0][0] for row in case.rows]) @ head.T
    found = gradients(cross_entropy(logits, targets(logits)), case.model)
    known = hybrid.gradients(cross_entropy(reference, targets(reference)), case.weights)
    assert wrong_gradients(found, known) == []


@pytest.mark.parametrize("trained", [("embedding", "final_norm", "blocks.{last}."), ("blocks.{last}.",), ("embedding",), ("blocks.1.",)])
@pytest.mark.parametrize("shape", ["one stream, top 1", "four streams, two sparse layers"])
def test_freezing_the_rest_leaves_a_gradient_as_it_is(shape: str, trained: tuple[str, ...]) -> None:
    case = build(shape)
    starts = tuple(start.format(last=case.recipe.layers - 1) for start in trained)
    model = copy.deepcopy(case.model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(starts))
    ids = torch.tensor([token for row in case.rows for token in row])
    logits = model.logits(model(ids, Layout(tuple(map(len, case.rows)))).final_ND)
    found = gradients(cross_entropy(logits, targets(logits)), model)
    assert found
    assert wrong_gradients(found, case.known_gradients) == []


def test_two_passes_may_share_one_backward() -> None:
    case = build("two streams, top 2")
    first, second = (case.model.logits(case.production([row]).final_ND) for row in case.rows)
    known_first, known_second = (logits for logits, _ in case.reference(case.rows))
    found = gradients(cross_entropy(first, targets(first)) + 2 * cross_entropy(second, targets(second)), case.model)
    loss = cross_entropy(known_first, targets(known_first)) + 2 * cross_entropy(known_second, targets(known_second))
    assert wrong_gradients(found, hybrid.gradients(loss, case.weights)) == []


@pytest.mark.parametrize("cut", [1, 4, 12])
def test_later_tokens_change_nothing_before_them(case: Case, cut: int) -> None:
    changed = [row[:cut] + [(token + 100) % 260 for token in row[cut:]] for row in case.rows]
    before, after = (case.model.logits(case.production(rows).final_ND) for rows in (case.rows, changed))
    position = torch.tensor([t for row in case.rows for t in range(len(row))])
    assert (before - after)[position < cut].abs().max() < 1e-5
    if (position >= cut).any():
        assert (before - after)[position >= cut].abs().amax(dim=1).min() > 1e-3


@pytest.mark.parametrize("read_first", [(1,), (2, 1), (9, 3, 1, 2), (8, 13, 20, 1)])
def test_decoding_step_by_step_gives_the_full_forward_at_every_position(case: Case, read_first: tuple[int, ...]) -> None:
    expected = [logits for logits, _ in case.expected]
    given = [min(read_first[i % len(read_first)], len(row)) for i, row in enumerate(case.rows)]
    logits, cache = case.model.prefill([row[:n] for row, n in zip(case.rows, given, strict=True)])
    active = list(range(len(case.rows)))
    while active:
        for slot, row in enumerate(active):
            assert (logits[slot] - expected[row][given[row] - 1]).abs().max() < 1e-4, f"row {row}, position {given[row] - 1}"
        going = [slot for slot, row in enumerate(active) if given[row] < len(case.rows[row])]
        active = [active[slot] for slot in going]
        if active:
            cache = cache.select(torch.tensor(going))
            logits = case.model.step(torch.tensor([case.rows[row][given[row]] for row in active]), cache)
        for row in active:
            given[row] += 1


def test_one_prompt_is_read_once_and_continued_by_many_rows(case: Case) -> None:
    prompt, tails = case.rows[0][:1], [[5, 6, 7, 8, 9, 10], [200, 6, 7, 0, 0, 3], [5, 100, 90, 80, 70, 60]]
    _, shared = case.model.prefill([prompt])
    cache: Cache = shared.select(torch.zeros(len(tails), dtype=torch.long))
    for position in range(6):
        logits = case.model.step(torch.tensor([tail[position] for tail in tails]), cache)
        expected = torch.stack([row[-1] for row, _ in case.reference([prompt + tail[: position + 1] for tail in tails])])
        assert (logits - expected).abs().max() < 1e-4
    assert shared.positions_R.tolist() == [1]


def test_linear_attention_never_divides_by_less_than_a_millionth() -> None:
    qkv = torch.tensor([[-20.0, -19.0, 1.0, 0.5, 3.0, -4.0]], requires_grad=True)
    turns = rotary(1, 2, 10000.0, torch.device("cpu"))
    attended = attention.linear_attention(qkv, Rows(Layout((1,)), turns), heads=1)
    exact = qkv.detach().double().requires_grad_()
    reference = hybrid.linear_attention(*(part[None] for part in exact.chunk(3, dim=1)))[0]
    assert relative_error(attended, reference) < 1e-5
    weights = torch.tensor([[0.3, 2.0]])
    found, known = torch.autograd.grad((attended * weights).sum(), qkv)[0], torch.autograd.grad((reference * weights).sum(), exact)[0]
    assert relative_error(found, known) < 1e-5
    state = attention.LinearState(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2))
    assert relative_error(attention.linear_step(qkv.detach(), torch.zeros(1, dtype=torch.long), turns, state), reference) < 1e-5


def test_bfloat16_stays_near_the_reference() -> None:
    recipe = ModelRecipe(width=32, layers=4, heads=2, experts=2, top_k=2, expert_hidden=24, streams=4, window=5, stride=4, context=40)
    weights = hybrid.random_weights(recipe, torch.Generator().manual_seed(5))
    model = decoder(weights, recipe, torch.bfloat16)
    ids = torch.randint(0, 260, (37,), generator=torch.Generator().manual_seed(6))
    leaves = {name: weight.requires_grad_() for name, weight in weights.items()}
    reference = hybrid.forward(leaves, recipe, ids[None])[0][0]
    logits = model.logits(model(ids, Layout((20, 17))).final_ND)
    assert relative_error(logits[:20], reference[:20]) < 0.02
    alone = model.logits(model(ids, Layout((37,))).final_ND)
    found = gradients(cross_entropy(alone, targets(alone)), model)
    known = hybrid.gradients(cross_entropy(reference, targets(reference)), leaves)
    assert relative_error(*(torch.cat([grads[name].flatten() for name in known]) for grads in (found, known))) < 0.02


def bfloat16_decoder_that_has_decoded(case: Case) -> Decoder:
    model = Decoder(case.recipe, torch.bfloat16)
    model.load_state_dict(case.model.state_dict())
    model.prefill(case.rows)
    return model


def assert_decodes_its_own_weights(model: Decoder, rows: list[list[int]]) -> None:
    fresh = Decoder(model.recipe, torch.bfloat16)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(model.prefill(rows)[0], fresh.prefill(rows)[0])


@pytest.mark.parametrize("fused", [False, True])
def test_decoding_in_bfloat16_follows_the_optimiser(fused: bool) -> None:
    case = build("two streams, top 2")
    model = bfloat16_decoder_that_has_decoded(case)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused).step()
    assert_decodes_its_own_weights(model, case.rows)


@torch.no_grad()
def scale(model: Decoder, factor: float) -> None:
    for parameter in model.parameters():
        parameter.mul_(factor)


def test_a_copy_in_bfloat16_decodes_its_own_weights() -> None:
    case = build("two streams, top 2")
    model = bfloat16_decoder_that_has_decoded(case)
    scale(model, 1.5)
    twin = copy.deepcopy(model)
    scale(twin, 1.5)
    assert_decodes_its_own_weights(twin, case.rows)
    assert_decodes_its_own_weights(model, case.rows)


def test_parameter_counts() -> None:
    mini = ModelRecipe(width=48, layers=3, heads=3, expert_hidden=96, experts=4, top_k=1, streams=2, window=24, stride=24, context=128)
    with torch.device("meta"):
        full, small = Decoder(ModelRecipe()), Decoder(mini)
    assert (count_parameters(full), count_parameters(full, active=True), count_parameters(small)) == (25_730_592, 9_805_344, 248_412)


def test_initial_weights() -> None:
    recipe = ModelRecipe(layers=2)
    own: dict[str, Tensor] = dict(Decoder(recipe).initialise(torch.Generator().manual_seed(1)).named_parameters())
    for name, shape in hybrid.parameter_shapes(recipe).items():
        weight = in_reference_shape(name, own)
        assert tuple(weight.shape) == shape
        if name.endswith("norm.weight"):
            assert (weight == 1).all()
        elif name.endswith("_logits"):
            sign = 1 if name.endswith("read_logits") else -1
            assert weight.tolist() == pytest.approx([sign * step for step in (0.1, 0.1 / 3, -0.1 / 3, -0.1)])
        else:
            assert weight.std().item() == pytest.approx(0.02, rel=5 / weight.numel() ** 0.5)
            assert abs(weight.mean().item()) < 5 * 0.02 / weight.numel() ** 0.5


def test_ids_that_do_not_fit_their_layout_or_cache_are_refused(case: Case) -> None:
    with pytest.raises(ValueError, match=r"^20 tokens do not fill a layout of 21 tokens$"):
        case.model(torch.zeros(20, dtype=torch.long), Layout((12, 9)))
    _, cache = case.model.prefill([[1], [2, 3]])
    with pytest.raises(ValueError, match=r"^1 ids do not continue the 2 rows of the cache$"):
        case.model.step(torch.zeros(1, dtype=torch.long), cache)


def test_a_copied_cache_goes_on_by_itself(case: Case) -> None:
    row = [1, 2, 3, 4]
    _, cache = case.model.prefill([row[:1]])
    case.model.step(torch.tensor(row[1:2]), cache)
    twin = copy.deepcopy(cache)
    case.model.step(torch.tensor([200]), twin)
    expected = case.reference([row[:3]])[0][0][-1]
    assert (case.model.step(torch.tensor(row[2:3]), cache) - expected).abs().max() < 1e-4
    assert (cache.positions_R.item(), twin.positions_R.item()) == (3, 3)
