"""The real mechanisms together, as the decoder combines them, against the library's text model."""

from typing import Any

import pytest
import torch
from torch import Tensor

from glint.export import library_tensors
from glint.model.decoder import Decoder
from glint.model.layout import Layout
from tests.mechanisms.weights import generator, gradients, library_config, randomise, recipe
from tests.reference.agreement import relative_error

WHOLE = recipe(index_heads=16)
"""So many heads that no two pools score exactly 0: of equal scores the library takes any."""


@pytest.fixture(scope="module")
def model() -> Decoder:
    return randomise(Decoder(WHOLE), 1)


def ids(count: int, seed: int = 1) -> Tensor:
    """Return ids without pad, to whose embedding the library gives no gradient."""
    return torch.randint(1, WHOLE.vocabulary, (count,), generator=generator(seed))


def in_library(library: Any, model: Decoder) -> Any:
    """Return the library's text model with the same weights; it has no head."""
    other = library.Glm5NextTextModel(library_config(library, model.recipe)).eval()
    other.load_state_dict(library_tensors({name: tensor for name, tensor in model.state_dict().items() if name != "head"}, ""))
    return other


def hidden_states(other: Any, rows: list[Tensor]) -> Tensor:
    """Return the library's hidden states of rows, each read by itself, packed."""
    return torch.cat([other(input_ids=row[None], use_cache=False).last_hidden_state[0] for row in rows])


def assert_near(found: Tensor, expected: Tensor) -> None:
    difference = (found - expected).abs()
    assert difference.max() < 4e-4
    assert difference.median() < 2e-5


def test_decoding_equals_the_forward_at_every_position(model: Decoder) -> None:
    lengths, more = (3, 30), 40
    rows = [ids(length + more, length) for length in lengths]
    with torch.no_grad():
        expected = [model.logits(model(row, Layout((len(row),))).final_ND)[length:] for row, length in zip(rows, lengths, strict=True)]
    _, cache = model.prefill([row[:length].tolist() for row, length in zip(rows, lengths, strict=True)])
    for t in range(more):
        found = model.step(torch.stack([row[length + t] for row, length in zip(rows, lengths, strict=True)]), cache)
        assert max((own - row[t]).abs().max() for own, row in zip(found, expected, strict=True)) < 1e-4, t


def test_later_tokens_change_nothing(model: Decoder) -> None:
    first = ids(64)
    second = first.clone()
    second[40:] = second[40:] % (WHOLE.vocabulary - 1) + 1
    with torch.no_grad():
        before, after = (model(x, Layout((64,))).final_ND for x in (first, second))
    assert (before[:40] - after[:40]).abs().max() < 1e-4  # rounding: an expert's products differ in their number of rows
    assert (before[40:] - after[40:]).abs().max() > 0.1


@pytest.mark.parametrize("lengths", [(192,), (5, 130, 57)], ids=str)
def test_matches_the_library(library: Any, model: Decoder, lengths: tuple[int, ...]) -> None:
    other, tokens = in_library(library, model), ids(sum(lengths))
    found = model(tokens, Layout(lengths)).final_ND
    expected = hidden_states(other, list(tokens.split(list(lengths))))
    assert_near(found, expected)
    probe = torch.randn(found.shape, generator=generator(2))
    own = dict(model.named_parameters())
    del own["head"]
    ours = library_tensors(gradients((found * probe).sum(), own), "")
    theirs = gradients((expected * probe).sum(), dict(other.named_parameters()))
    assert ours.keys() == theirs.keys()
    wrong = {name: relative_error(ours[name], theirs[name]) for name in ours if theirs[name].norm() > 1e-6}
    assert max(wrong.values()) < 1e-3, wrong
    assert {name for name in ours if theirs[name].abs().max() == 0} == {name for name in ours if ours[name].abs().max() == 0}
