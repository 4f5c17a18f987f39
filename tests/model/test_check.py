"""The checks in order, on every combination of mechanisms; and that each check sees the mistake it is there for."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from glint import check
from glint.check import CHECKS, Failed
from glint.config.model import PRESETS, ModelRecipe
from glint.model import checkpoint, dense
from glint.model.decoder import Decoder
from glint.model.dense import DenseCache
from glint.model.feedforward import DenseFeedForward
from glint.model.streams import SinglePass
from tests.model.shapes import COMBINATIONS, LLAMA, SMALL

RECIPE = ModelRecipe.model_validate(LLAMA)


@pytest.mark.parametrize("title", CHECKS)
@pytest.mark.parametrize("name", COMBINATIONS)
def test_every_combination_passes(name: str, title: str) -> None:
    CHECKS[title](COMBINATIONS[name])


def failure(title: str, recipe: ModelRecipe = RECIPE) -> str:
    with pytest.raises(Failed) as caught:
        CHECKS[title](recipe)
    return str(caught.value)


def test_an_attention_that_sees_the_future_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "scaled_dot_product_attention", lambda *x, **_: scaled_dot_product_attention(*x))
    assert failure("causality").startswith("changing the tokens from position 0 on changed logits before it, or in another row, by ")


def test_a_start_that_knows_too_much_fails() -> None:
    assert failure("loss at the start", RECIPE.model_copy(update={"init_std": 2.0})).endswith("not near ln V = 5.561")


def test_a_parameter_that_is_not_used_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DenseFeedForward, "forward", lambda _, residual, x, weights: (residual + 0 * (x @ weights["up"])[:, :1], None))
    assert failure("gradients") == "the gradient of blocks.0.ffn_norm is zero"


def test_a_model_that_cannot_learn_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MOST_STEPS", 3)
    assert failure("overfit two examples").startswith("after 3 steps on two examples ")


def test_a_checkpoint_that_loses_bits_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    save = checkpoint.save

    def narrow(model: Decoder, folder: Path) -> None:
        model.dtype = torch.bfloat16
        save(model, folder)
        model.dtype = torch.float32

    monkeypatch.setattr(checkpoint, "save", narrow)
    assert failure("save and load") == "a checkpoint that was saved and loaded gives other logits"


def test_a_decoder_that_forgets_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    write = DenseCache.write

    def forgetful(cache: DenseCache, positions: Tensor, k: Tensor, v: Tensor) -> int:
        return write(cache, positions, k, torch.zeros_like(v) if int(positions.max()) % 5 == 0 else v)

    monkeypatch.setattr(DenseCache, "write", forgetful)
    assert "decoding and the full forward pass differ by " in failure("decode = forward")


def test_a_layer_that_is_skipped_in_one_of_the_two_forms_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def weaker(own: SinglePass, layer: int, change: Tensor) -> tuple[Tensor, Tensor]:
        total = own.x_ND + change * (1 if len(change) > 4 else 0.9)
        return total, total

    monkeypatch.setattr(SinglePass, "after_attention", weaker)
    assert "decoding and the full forward pass differ by " in failure("decode = forward")


def test_the_first_failure_is_the_last_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: ModelRecipe) -> str:
        raise Failed("it is wrong")

    monkeypatch.setitem(check.CHECKS, "causality", fail)
    assert not check.check("small", RECIPE)
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0][:19], lines[1:]) == ("small: shapes: ok, ", ["small: causality: FAILED, it is wrong"])


def test_every_model_of_a_config_is_checked_once(tmp_path: Path) -> None:
    arms: dict[str, Any] = {"published": {}, "dense": {"model": {"ffn": "dense"}}, "shuffled": {"rl": {"shuffle_rewards": True}}}
    study = {"question": "Which?", "arms": arms, "seeds": [1]}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"run": "mine", "recipes": {"main": {"model": SMALL | {"context": 160}}}, "studies": {"main": study}}))
    found = check.models(str(path))
    assert {name: recipe.ffn for name, recipe in found.items()} == {"main, published": "moe", "main, dense": "dense"}
    assert check.models("dense") == {"dense": PRESETS["dense"]}
    assert check.models(None) == PRESETS


def test_an_unknown_model_is_one_sentence() -> None:
    run = subprocess.run([sys.executable, "-m", "glint.check", "--model", "dens"], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr == "error: model dens is unknown; did you mean dense? allowed: hybrid, faithful, dense, or a config file\n"
