"""A faithful model as the library reads it from a folder: the same hidden states, the same bytes; and the preset at its full size."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glint.config.model import PRESETS, ModelRecipe
from glint.export import export
from glint.generate import generate
from glint.model import checkpoint, indexed
from glint.model.decoder import Decoder, count_parameters
from glint.model.indexer import choose
from glint.model.layout import Layout
from tests.mechanisms.test_whole import WHOLE, assert_near, ids
from tests.mechanisms.weights import randomise, recipe

MODELS = {"untied": WHOLE, "tied, without a limit": recipe(index_heads=16, tied=True, gate_limit=None, visible=16, pool=4)}


@torch.no_grad()
def beyond_ten(recipe: ModelRecipe) -> Decoder:
    """Return a model some of whose gates and values exceed 10."""
    model = randomise(Decoder(recipe), 0)
    for _, block in model.layers():
        block.get_parameter("up").mul_(6)
        block.get_parameter("down").div_(30)
    return model


def read(folder: Path) -> Any:
    """Return what the library makes of an exported folder."""
    transformers = pytest.importorskip("transformers")
    theirs, report = transformers.AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return theirs.eval()


@pytest.mark.parametrize("name", MODELS)
def test_the_library_reads_the_export_and_writes_the_same_bytes(library: Any, tmp_path: Path, name: str) -> None:
    model = beyond_ten(MODELS[name])
    checkpoint.save(model, tmp_path / "ours")
    export(checkpoint.load([tmp_path / "ours"], torch.device("cpu"), torch.float32), tmp_path / "theirs")
    theirs = read(tmp_path / "theirs")
    assert type(theirs).__name__ == "Glm5NextForConditionalGeneration"
    for prompt in ([1, 104, 105], ids(40).tolist()):
        tokens = torch.tensor([prompt])
        with torch.no_grad():
            hidden = model(tokens[0], Layout((len(prompt),))).final_ND
            assert_near(hidden, theirs.model.language_model(input_ids=tokens, use_cache=False).last_hidden_state[0])
            assert_near(model.logits(hidden), theirs(input_ids=tokens, use_cache=False).logits[0])
        ((ours,),) = generate(model, [prompt], None, 12)
        assert theirs.generate(tokens, max_new_tokens=12)[0, len(prompt) :].tolist() == ours.ids


def first_tie(model: Decoder, tokens: Tensor, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the first position at which the last pool that some layer chooses scores no more than the first it leaves."""
    ties: list[int] = []

    def watched(scores_BTG: Tensor, candidates_BTG: Tensor, count: int) -> Tensor:
        falling_TG = scores_BTG[0].masked_fill(~candidates_BTG[0], float("-inf")).sort(descending=True).values
        tied_T = (falling_TG[:, count - 1] == falling_TG[:, count]) & falling_TG[:, count].isfinite()
        ties.extend(tied_T.nonzero().flatten().tolist())
        return choose(scores_BTG, candidates_BTG, count)

    with monkeypatch.context() as patch:
        patch.setattr(indexed, "choose", watched)
        model(tokens, Layout((len(tokens),)))
    return min(ties, default=len(tokens))


@torch.no_grad()
def test_the_preset_at_its_full_size(library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its indexers have few heads, so that two pools may both score 0: where they do, the library takes any, and the comparison ends."""
    model, tokens = randomise(Decoder(PRESETS["faithful"]), 3), ids(64)
    export(model, tmp_path)
    theirs = read(tmp_path)
    text = sum(parameter.numel() for name, parameter in theirs.named_parameters() if ".visual." not in name)
    assert text == count_parameters(model) == 25_727_852
    alike = first_tie(model, tokens, monkeypatch)
    assert alike > PRESETS["faithful"].visible + 8
    found = model(tokens, Layout((64,))).final_ND
    expected = theirs.model.language_model(input_ids=tokens[None], use_cache=False).last_hidden_state[0]
    assert_near(found[:alike], expected[:alike])
