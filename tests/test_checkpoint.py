"""Checkpoints: what was saved comes back, and every fault is one sentence that names the file."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from glint.config.model import ModelRecipe
from glint.files import sha256
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.model.layout import Layout

MODEL = ModelRecipe(width=8, layers=4, heads=2, experts=2, top_k=1, expert_hidden=4, streams=2, window=4, stride=4, context=32)
CPU = torch.device("cpu")


def model(seed: int, recipe: ModelRecipe = MODEL) -> Decoder:
    return Decoder(recipe).initialise(torch.Generator().manual_seed(seed))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    checkpoint.save(model(1), tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def trained(base: Path, tmp_path: Path) -> Path:
    """Return what training the last block and the head has laid over `base`."""
    policy = checkpoint.load([base], CPU, torch.float32).freeze("last_block_and_head")
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(1)
    checkpoint.save(policy, tmp_path / "trained", base=base)
    return tmp_path / "trained"


def same(one: Decoder, other: Decoder) -> bool:
    return one.state_dict().keys() == other.state_dict().keys() and all(
        torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items()
    )


def test_what_was_saved_comes_back(base: Path) -> None:
    loaded = checkpoint.load([base], CPU, torch.bfloat16)
    assert same(loaded, model(1))
    assert loaded.recipe == MODEL
    assert loaded.dtype == torch.bfloat16
    assert loaded.embedding.dtype == torch.float32


def test_matrices_are_kept_as_a_bfloat16_model_reads_them(base: Path, tmp_path: Path) -> None:
    narrow = checkpoint.load([base], CPU, torch.bfloat16)
    checkpoint.save(narrow, tmp_path / "narrow")
    kept = load_file(tmp_path / "narrow/model.safetensors")
    narrowed = {name.rpartition(".")[2] for name, tensor in kept.items() if tensor.dtype == torch.bfloat16}
    assert narrowed == {"qkv", "out", "router", "up", "down"}
    again = checkpoint.load([tmp_path / "narrow"], CPU, torch.bfloat16)
    ids, layout = torch.arange(9), Layout((9,))
    assert torch.equal(again(ids, layout).final_ND, narrow(ids, layout).final_ND)
    assert torch.equal(again.prefill([[1, 2, 3]])[0], narrow.prefill([[1, 2, 3]])[0])


def test_saving_twice_gives_the_same_bytes(base: Path, tmp_path: Path) -> None:
    checkpoint.save(model(1), tmp_path / "again")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (base / name).read_bytes()


def test_a_checkpoint_from_before_there_were_mechanisms_to_choose_is_a_hybrid(base: Path) -> None:
    config = json.loads((base / "config.json").read_text())
    for key in ("linear", "sparse", "residual", "ffn", "ffn_hidden", "tied"):
        del config["model"][key]
    (base / "config.json").write_text(json.dumps(config))
    assert checkpoint.load([base], CPU, torch.float32).recipe == MODEL


def test_training_keeps_only_what_it_has_trained_and_the_hash_of_its_base(base: Path, trained: Path) -> None:
    expected = model(1).freeze("last_block_and_head")
    kept = load_file(trained / "model.safetensors")
    assert kept.keys() == expected.trainable().keys()
    assert json.loads((trained / "config.json").read_text())["base_sha256"] == sha256(base / "model.safetensors")
    with torch.no_grad():
        for parameter in expected.trainable().values():
            parameter.add_(1)
    assert same(checkpoint.load([base, trained], CPU, torch.float32), expected)


def fault(*folders: Path) -> str:
    """Return the one sentence in which loading ends."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - each test checks the whole sentence
        checkpoint.load(folders, CPU, torch.float32)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


@pytest.mark.parametrize("lost", ["model.safetensors", "config.json"])
def test_a_lost_file(base: Path, trained: Path, lost: str) -> None:
    (trained / lost).unlink()
    assert fault(base, trained) == f"no checkpoint in {trained}: {lost} is missing"
    (base / lost).unlink()
    assert fault(base) == f"no checkpoint in {base}: {lost} is missing"


def test_a_lost_folder(tmp_path: Path) -> None:
    assert fault(tmp_path / "nowhere") == f"no checkpoint in {tmp_path / 'nowhere'}: config.json is missing"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def scramble(path: Path) -> None:
    path.write_bytes(b"\xff" * 20 + path.read_bytes()[20:])


@pytest.mark.parametrize("damage", [cut, empty, scramble])
def test_damaged_weights(base: Path, damage: Callable[[Path], None]) -> None:
    damage(base / "model.safetensors")
    assert re.fullmatch(rf"{base}/model\.safetensors is damaged \(.+\); delete it and run again", fault(base))


@pytest.mark.parametrize("damage", [cut, empty, scramble])
def test_a_damaged_config(base: Path, damage: Callable[[Path], None]) -> None:
    damage(base / "config.json")
    assert re.fullmatch(rf"{base}/config\.json is not valid JSON \(.+\); delete it and run again", fault(base))


def test_another_format_version(base: Path) -> None:
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"format_version": 9}))
    assert fault(base) == f"{base}/config.json has format version 9; this version of Glint reads 2"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(base: Path, trained: Path, value: float) -> None:
    for folder, others in ((trained, (base,)), (base, ())):
        tensors = load_file(folder / "model.safetensors")
        tensors["blocks.3.qkv"][2, 1] = value
        save_file(tensors, folder / "model.safetensors")
        assert fault(*others, folder) == f"{folder}/model.safetensors holds a value that is not finite, in blocks.3.qkv"


def test_a_flipped_bit(base: Path) -> None:
    weights = base / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-2] ^= 1
    weights.write_bytes(data)
    assert fault(base) == f"{weights} is not what its config.json was written for (the hashes differ); delete {base} and run again"


def test_weights_of_another_model(base: Path, tmp_path: Path) -> None:
    checkpoint.save(model(1, MODEL.model_copy(update={"width": 12})), tmp_path / "wide")
    shutil.copy(tmp_path / "wide/model.safetensors", base / "model.safetensors")
    assert fault(base).startswith(f"{base}/model.safetensors does not fit its config.json: ")


def test_weights_that_are_not_all_there(base: Path) -> None:
    tensors = load_file(base / "model.safetensors")
    del tensors["final_norm"], tensors["embedding"]
    save_file(tensors, base / "model.safetensors")
    assert fault(base) == f"{base}/model.safetensors does not fit its config.json: embedding, final_norm"


def test_trained_tensors_over_another_base(trained: Path, tmp_path: Path) -> None:
    checkpoint.save(model(2), tmp_path / "other")
    assert fault(tmp_path / "other", trained) == f"{trained} was trained from other weights than those in {tmp_path / 'other'}"


def test_a_whole_model_is_no_layer(base: Path, tmp_path: Path) -> None:
    checkpoint.save(model(2), tmp_path / "other")
    assert fault(base, tmp_path / "other") == f"{tmp_path / 'other'} was trained from other weights than those in {base}"


def test_trained_tensors_are_no_whole_model(trained: Path) -> None:
    assert fault(trained).startswith(f"{trained}/model.safetensors does not fit its config.json: ")
