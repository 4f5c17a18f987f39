"""Indexed attention against float64 formulas, against the library, and its steps against its own forward, ties included."""

from typing import Any

import pytest
import torch
from torch import Tensor

from glint.model.indexed import IndexedAttention, IndexedCache
from glint.model.indexer import Indexer, choose, complete_pools, divergence, visible_tokens
from glint.model.layout import Indexing, Layout
from glint.model.ranking import first_largest
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

RANK, POOL, CHOSEN = RECIPE.kv_rank, 4, 3
ODD = 43
"""Ten complete pools and three tokens more."""
INDEXER = set(Indexer(RECIPE).parameters())


def layer(seed: int = 0, index_heads: int = 4, pool: int = POOL) -> HeldAttention[IndexedAttention]:
    own = recipe(index_heads=index_heads, pool=pool, visible=CHOSEN * pool)
    return randomise(HeldAttention(IndexedAttention(own)), seed, gain=1.5)


def tokens(count: int, seed: int = 1) -> Tensor:
    return torch.randn(count, WIDTH, generator=generator(seed))


@pytest.mark.parametrize(("dense", "index_heads"), [(False, 4), (True, 4), (False, 1)])
def test_output_loss_and_gradients_match_the_formulas(dense: bool, index_heads: int) -> None:
    """One index head gives many scores that are exactly 0, and so ties."""
    module, h_ND = layer(index_heads=index_heads), tokens(ODD)
    weights, probe = doubles(module), torch.randn(ODD, WIDTH, generator=generator(3))
    divergences: list[Tensor] = []
    found = module(h_ND, Layout((ODD,)), indexing=Indexing(dense, divergences))
    expected, losses, pools = formulas.indexed(weights, h_ND.double(), HEADS, None if dense else CHOSEN)
    assert max(map(len, pools)) == (ODD // POOL if dense else CHOSEN)
    assert (found - expected).abs().max() < 1e-5
    assert (divergences[0] - losses).abs().max() < 1e-5
    assert losses.max() > 0.1
    own = gradients((found * probe).sum() + divergences[0].sum(), dict(module.named_parameters()))
    assert largest_disagreement(own, gradients((expected * probe).sum() + losses.sum(), weights)) < 1e-4


def test_without_the_loss_the_output_is_the_same() -> None:
    module, h_ND = layer(), tokens(ODD)
    assert (module(h_ND, Layout((ODD,))) - module(h_ND, Layout((ODD,)), indexing=Indexing(divergences=[]))).abs().max() < 1e-5


def test_the_loss_trains_the_indexer_alone_and_the_output_everything_else() -> None:
    module, h_ND = layer(), tokens(ODD).requires_grad_()
    divergences: list[Tensor] = []
    output = module(h_ND, Layout((ODD,)), indexing=Indexing(divergences=divergences))
    tensors = dict(module.named_parameters()) | {"h": h_ND}
    by_loss, by_output = (gradients(x, tensors) for x in (divergences[0].sum(), output.square().sum()))
    assert {name for name, gradient in by_loss.items() if gradient.abs().max() > 0} == INDEXER
    assert {name for name, gradient in by_output.items() if gradient.abs().max() > 0} == set(tensors) - INDEXER


def test_training_the_indexer_lets_it_follow_the_attention() -> None:
    module, h_ND = layer(), tokens(ODD)
    optimiser = torch.optim.Adam([module.get_parameter(name) for name in INDEXER], lr=0.01)
    means = []
    for _ in range(30):
        divergences: list[Tensor] = []
        module(h_ND, Layout((ODD,)), indexing=Indexing(True, divergences))
        means.append(divergences[0].mean())
        optimiser.zero_grad()
        means[-1].backward()
        optimiser.step()
    assert means[-1] < means[0] / 2


def test_rows_of_any_length_match_the_formulas_when_pools_straddle_a_shared_prompt() -> None:
    module, lengths, prompt = layer(), (5, 18, 1), 6
    h_ND = tokens(prompt + sum(lengths))
    divergences: list[Tensor] = []
    found = module(h_ND, Layout(lengths, prompt), indexing=Indexing(divergences=divergences))
    weights, rows = doubles(module), h_ND.double().split([prompt, *lengths])
    expected = [formulas.indexed(weights, torch.cat([rows[0], row]), HEADS, CHOSEN) for row in rows[1:]]
    outputs = [expected[0][0][:prompt], *(output[prompt:] for output, _, _ in expected)]
    losses = [expected[0][1][:prompt], *(loss[prompt:] for _, loss, _ in expected)]
    assert (found - torch.cat(outputs)).abs().max() < 1e-5
    assert (divergences[0] - torch.cat(losses)).abs().max() < 1e-5


@pytest.mark.parametrize("index_heads", [4, 1])
def test_a_step_equals_the_forward_at_every_position_ties_included(index_heads: int) -> None:
    """The cache has room for no token at first, and grows by eight pools at a time."""
    module, h_ND = layer(index_heads=index_heads), tokens(2 * ODD)
    expected = module(h_ND, Layout((ODD, ODD))).view(2, ODD, WIDTH)
    cache = module.mechanism.empty(2, 0, h_ND)
    rooms = [cache.latents_BCU.shape[1]]
    for t in range(ODD):
        found = module.step(h_ND.view(2, ODD, WIDTH)[:, t], torch.full((2,), t), cache)
        assert (found - expected[:, t]).abs().max() < 1e-5, t
        rooms.append(cache.latents_BCU.shape[1])
        assert cache.pools_BGJ.shape[1] * POOL == rooms[-1]
    assert rooms == [0, *[32] * 32, *[64] * (ODD - 32)]
    if index_heads == 1:
        assert tied_rows(module, h_ND[:ODD]).any()


def tied_rows(module: HeldAttention[IndexedAttention], h_TD: Tensor) -> Tensor:
    """Return which positions have equal scores on either side of the choice [T]."""
    weights, length = doubles(module), len(h_TD)
    query_latent = torch.stack([formulas.rms(weights["query_down"] @ h) * weights["query_norm"] for h in h_TD.double()])
    rows = [sorted((s.item() for s in formulas.index_scores(weights, h_TD.double(), query_latent, t)), reverse=True) for t in range(length)]
    return torch.tensor([len(row) > CHOSEN and row[CHOSEN - 1] == row[CHOSEN] for row in rows])


@pytest.mark.parametrize("prompt", [0, 6])
def test_steps_go_on_from_a_prefill(prompt: int) -> None:
    module, lengths, more = layer(), (1, 20, 7), 9
    rows = [tokens(length + more, seed) for seed, length in enumerate(lengths)]
    shared = tokens(prompt, 9)
    caches: list[IndexedCache] = []
    beginnings = [row[:length] for row, length in zip(rows, lengths, strict=True)]
    module(torch.cat([shared, *beginnings]), Layout(lengths, prompt), caches)
    for t in range(more):
        news = torch.stack([row[length + t] for row, length in zip(rows, lengths, strict=True)])
        found = module.step(news, torch.tensor(lengths) + prompt + t, caches[0])
        for own, row, length in zip(found, rows, lengths, strict=True):
            whole = torch.cat([shared, row[: length + t + 1]])
            assert (own - module(whole, Layout((len(whole),)))[-1]).abs().max() < 1e-5


def test_with_bf16_products_a_step_stays_near_the_forward() -> None:
    module, h_ND = layer(), tokens(ODD).bfloat16()
    expected, cache = module(h_ND, Layout((ODD,))), module.mechanism.empty(1, ODD, h_ND)
    found = torch.cat([module.step(h[None], torch.tensor([t]), cache) for t, h in enumerate(h_ND)])
    assert found.dtype == expected.dtype == cache.latents_BCU.dtype == torch.bfloat16
    assert relative_error(found, expected) < 0.01


def test_a_selected_row_goes_on_as_before() -> None:
    module, h_ND = layer(), tokens(2 * ODD)
    caches: list[IndexedCache] = []
    module(h_ND, Layout((ODD, ODD)), caches)
    second = caches[0].select(torch.tensor([1]))
    new, at = tokens(2), torch.tensor([ODD, ODD])
    assert (module.step(new[1:], at[1:], second) - module.step(new, at, caches[0])[1]).abs().max() < 1e-5


def test_equal_scores_go_to_the_lowest_pool_first() -> None:
    scores = torch.tensor([0.0, -1.0, -0.0, 2.0, 0.0])
    assert first_largest(scores, 3).tolist() == [3, 0, 2]
    candidates = torch.tensor([[[True, True, True, False, True]]])
    assert choose(scores[None, None], candidates, 2).tolist() == [[[True, False, True, False, False]]]


def test_what_a_position_sees_by_hand() -> None:
    # Pools of 2: position 4 has pools 0 and 1 complete and stands alone in its pool; position 5 completes pool 2, so it has no tail.
    positions = torch.tensor([0, 4, 5])
    assert complete_pools(positions, 3, 2).tolist() == [[False] * 3, [True, True, False], [True] * 3]
    chosen = torch.tensor([[[False] * 3, [False, True, False], [True, False, False]]])
    seen = visible_tokens(chosen, positions, 2, 7)[0]
    assert [row.nonzero().flatten().tolist() for row in seen] == [[0], [2, 3, 4], [0, 1]]


def test_a_divergence_by_hand() -> None:
    # Pools of 1, of which the last is not seen: shares 1/4 and 3/4 against a uniform guess.
    scores, pools = torch.zeros(1, 1, 3), torch.tensor([[[True, True, False]]])
    attention = torch.tensor([0.1, 0.3, 0.6]).view(1, 1, 1, 3).expand(1, 2, 1, 3)
    expected = 0.25 * torch.tensor(0.5).log() + 0.75 * torch.tensor(1.5).log()
    assert divergence(scores, pools, attention, 1).item() == pytest.approx(expected.item(), abs=1e-6)


def test_the_cache_holds_a_latent_a_token_and_a_key_a_pool() -> None:
    cache = layer().mechanism.empty(3, 20, tokens(1))
    assert [tuple(x.shape) for x in (cache.latents_BCU, cache.pools_BGJ, cache.members_BPX)] == [
        (3, 32, RANK),
        (3, 8, SIZE),
        (3, 4, 2 * SIZE),
    ]


def in_library(library: Any, module: HeldAttention[IndexedAttention]) -> Any:
    """Return the library's layer with the same weights."""
    other = library.Glm5NextTextAttention(library_config(library, module.mechanism.recipe), 3)
    other.load_state_dict(library_names(dict(module.named_parameters()), "self_attn"))
    return other


@pytest.mark.parametrize("pool", [4, 8])
def test_matches_the_library_where_no_scores_are_equal(library: Any, pool: int) -> None:
    length = 103
    module, h_ND = layer(pool=pool), tokens(length).requires_grad_()
    found = module(h_ND, Layout((length,)))
    expected, attention, _ = in_library(library, module)(h_ND[None], attention_mask=torch.ones(1, length, dtype=torch.bool))
    untied = ~tied_rows(module, h_ND.detach())
    assert untied.float().mean() > 0.8
    _, _, pools = formulas.indexed(doubles(module), h_ND.detach().double(), HEADS, CHOSEN)
    theirs = (attention[0].sum(0) > 0)[untied]
    ours = [[s // pool in pools[t] or (t + 1) // pool * pool <= s <= t for s in range(length)] for t in range(length)]
    assert torch.equal(theirs, torch.tensor(ours)[untied])
    assert (found - expected[0])[untied].abs().max() < 1e-5
    probe = torch.randn(found.shape, generator=generator(4)) * untied[:, None]
    (own,), (other,) = (torch.autograd.grad((x * probe).sum(), [h_ND]) for x in (found, expected[0]))
    assert (own - other).abs().max() < 1e-4 * other.abs().max()
