"""The real mechanisms together: four layers against the library's text model, and decoding against the forward."""

from typing import Any

import pytest
import torch
from torch import Tensor

from glint.model.layout import Layout
from tests.mechanisms import library_names
from tests.mechanisms.weights import LAYERS, VOCABULARY, WIDTH, generator, gradients, library_config, randomise
from tests.mechanisms.whole import Whole
from tests.reference.agreement import relative_error

LENGTH = 192
INDEX_HEADS = 16
"""So many that no two pools score exactly 0: of equal scores the library takes any."""


@pytest.fixture(scope="module")
def model() -> Whole:
    return randomise(Whole(index_n_heads=INDEX_HEADS), 0)


def ids(count: int) -> Tensor:
    return torch.randint(VOCABULARY, (count,), generator=generator(1))


def test_decoding_equals_the_forward_at_every_position(model: Whole) -> None:
    lengths, more = (3, 30), 40
    rows = [torch.randint(VOCABULARY, (length + more,), generator=generator(length)) for length in lengths]
    caches: list[Any] = []
    beginnings = torch.cat([row[:length] for row, length in zip(rows, lengths, strict=True)])
    with torch.no_grad():
        model(beginnings, Layout(lengths), caches, max(lengths) + more)
        expected = [model(row, Layout((len(row),)))[length:] for row, length in zip(rows, lengths, strict=True)]
    for t in range(more):
        news = torch.stack([row[length + t] for row, length in zip(rows, lengths, strict=True)])
        found = model.step(news, torch.tensor(lengths) + t, caches)
        assert max((own - row[t]).abs().max() for own, row in zip(found, expected, strict=True)) < 1e-4, t


def test_later_tokens_change_nothing(model: Whole) -> None:
    first = ids(64)
    second = first.clone()
    second[40:] = (second[40:] + 1) % VOCABULARY
    with torch.no_grad():
        before, after = (model(x, Layout((64,))) for x in (first, second))
    assert (before[:40] - after[:40]).abs().max() < 1e-4  # rounding: an expert's products differ in their number of rows
    assert (before[40:] - after[40:]).abs().max() > 0.1


def test_matches_the_library(library: Any, model: Whole) -> None:
    other = library.Glm5NextTextModel(library_config(library, index_n_heads=INDEX_HEADS))
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    other.load_state_dict(library_names.model(state, LAYERS))
    found = model(ids(LENGTH), Layout((LENGTH,)))
    expected = other(input_ids=ids(LENGTH)[None], use_cache=False).last_hidden_state[0]
    difference = (found - expected).abs()
    assert difference.max() < 4e-4
    assert difference.median() < 2e-5
    probe = torch.randn(LENGTH, WIDTH, generator=generator(2))
    ours = library_names.model(gradients((found * probe).sum(), dict(model.named_parameters())), LAYERS)
    theirs = gradients((expected * probe).sum(), dict(other.named_parameters()))
    assert ours.keys() == theirs.keys()
    wrong = {name: relative_error(ours[name], theirs[name]) for name in ours if theirs[name].norm() > 1e-6}
    assert max(wrong.values()) < 1e-3, wrong
    assert {name for name in ours if theirs[name].abs().max() == 0} == {name for name in ours if ours[name].abs().max() == 0}
