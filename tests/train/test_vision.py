"""One run of a vision study, whole: files, equal bytes for equal seeds, learning, and the two starts."""

import json
import math
from typing import Any

import pandas as pd
import pytest
import torch

from glint.config.model import ModelRecipe
from glint.config.vision import VisionJob, VisionRecipe
from glint.files import read_json
from glint.model import checkpoint
from glint.tasks.digits import held_out
from glint.tasks.tokenizer import decode
from glint.train.vision import VisionTrainer, train
from tests.train.tiny import CPU, MODEL, metrics

MINI = ModelRecipe(
    width=32, layers=1, heads=4, experts=4, top_k=2, expert_hidden=48, streams=2, window=8, stride=8, context=64
)  # fmt: skip
SHORT: dict[str, Any] = {"steps": 2, "batch": 4, "held_out": 10, "checkpoints": (0, 1, 2)}


def job(seed=1, model=MINI, **changes):
    return VisionJob(model=model, vision=VisionRecipe(**SHORT | changes), execution=CPU, seed=seed)


def test_every_file_is_written_and_every_image_is_scored_at_every_checkpoint(tmp_path):
    train(job(), None, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"predictions.parquet", "metrics.jsonl", "receipt.json"}
    rows = pd.read_parquet(tmp_path / "predictions.parquet")
    assert rows.groupby("step")["image"].apply(list).to_dict() == {step: list(range(10)) for step in (0, 1, 2)}
    assert [decode([answer]).decode() for answer in rows["answer"]] == [str(digit) for digit in rows["digit"]]
    assert (rows["log_prob"] < 0).all()
    receipt = read_json(tmp_path / "receipt.json")
    assert receipt["parameters"] == {"total": 60924, "active": 60924 - 9216}
    assert (receipt["updates"], receipt["images"], receipt["start"]) == (2, 8, "random")
    assert receipt["trainable_parameters"] == 60924
    assert [record["step"] for record in metrics(tmp_path)] == [1, 2]


def test_before_training_every_id_is_about_equally_likely(tmp_path):
    train(job(held_out=50), None, tmp_path)
    rows = pd.read_parquet(tmp_path / "predictions.parquet")
    assert -rows.loc[rows["step"] == 0, "log_prob"].mean() == pytest.approx(torch.tensor(263.0).log().item(), abs=0.15)


@pytest.mark.parametrize("path", ["faithful", "direct_patch"])
def test_both_paths_learn_to_tell_digits_apart(path):
    """On large digits that stay in place; whoever ignores the image has a cross-entropy of ln 10 or more."""
    digits = {"digit_height": 26, "digit_width": 16, "stroke": 4, "noise": 0.0, "shift": 0}
    plan = digits | {"path": path, "steps": 60, "batch": 40, "held_out": 50, "checkpoints": (0, 60), "lr": 5e-3}
    trainer = VisionTrainer(job(3, **plan), None)
    while trainer.step < 60:
        trainer.advance()
    rows = pd.DataFrame(trainer.score(held_out(trainer.job.vision)))
    assert -rows["log_prob"].mean() < math.log(10) - 0.25


def test_one_seed_gives_the_same_bytes_twice_and_another_seed_others(tmp_path):
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        train(job(seed), None, tmp_path / name)
    one, two, other = (pd.read_parquet(tmp_path / name / "predictions.parquet")["log_prob"].tolist() for name in ("one", "two", "other"))
    assert one == two != other
    assert metrics(tmp_path / "one") == metrics(tmp_path / "two")


def test_the_arms_of_a_seed_start_from_one_language_model():
    one, other = (VisionTrainer(job(7, path=path), None).model.decoder.state_dict() for path in ("faithful", "direct_patch"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_from_a_checkpoint_the_last_block_and_the_tied_matrix_are_trained(school, tmp_path):
    start = school.start
    plan = job(model=MODEL, start="selected", path="direct_patch")
    trainer = VisionTrainer(plan, start)
    before = checkpoint.load([start], trainer.device, trainer.dtype)
    while trainer.step < 2:
        trainer.advance()
    after = trainer.model.decoder.state_dict()
    changed = {
        name
        for name, tensor in before.state_dict().items()
        if not torch.equal(after[name][: len(tensor)] if name == "embedding" else after[name], tensor)
    }
    assert {name for name in changed if not name.startswith("blocks.3.")} == {"embedding", "final_norm"}
    assert {"blocks.3.qkv", "blocks.3.down"} <= changed
    train(plan, start, tmp_path)
    assert read_json(tmp_path / "receipt.json")["start"] == start.name
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])["loss"] > 0


def test_a_loss_that_is_no_number_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"step \d of seed 1: the loss is .* lower vision.lr"):
        train(job(lr=1e30, steps=5, checkpoints=(0, 5)), None, tmp_path)
    assert not list(tmp_path.iterdir())
