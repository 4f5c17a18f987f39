"""Pretraining: equal bits for equal seeds, a curve that was written down, two examples learned by heart, faults in one sentence."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from glint.files import read_json
from glint.generate import generate
from glint.model import checkpoint
from glint.model.decoder import count_parameters
from glint.tasks.tokenizer import EOS
from glint.train.pretrain import pretrain, read_rows
from tests.train.tiny import BATCH, MODEL, STEPS, School, metrics, pretrain_job, weights, write_corpus

CURVE = [5.5101, 5.0877, 4.6765, 4.3330, 4.0509, 3.7927, 3.5867, 3.4203, 3.3796]
"""Loss of the first steps. Rounding moves it by 1e-5, until it tips a router's choice.

A change of the model, its start, the data or the optimiser moves it by far more.
"""


def test_the_loss_follows_the_curve_that_was_written_down(school: School) -> None:
    losses = [record["loss"] for record in metrics(school.pretrained)]
    assert losses[: len(CURVE)] == pytest.approx(CURVE, abs=1e-3)
    assert sum(losses[-10:]) / 10 < 0.6


def test_one_seed_gives_the_same_bits_twice_and_another_seed_others(school: School, tmp_path: Path) -> None:
    runs = []
    for name, seed in (("one", 1), ("two", 1), ("other", 5)):
        pretrain(pretrain_job(steps=6, checkpoints=(0, 3, 6), seed=seed), school.tokens, tmp_path / name, tmp_path / f"{name}-state")
        runs.append((weights(tmp_path / name), metrics(tmp_path / name)))
    assert runs[0] == runs[1]
    for kind in (0, 1):
        assert runs[0][kind] != runs[2][kind]
    assert sorted(runs[0][0]) == [f"step-000{step}/{name}" for step in (0, 3, 6) for name in ("config.json", "model.safetensors")]


def test_the_record_counts_tokens_without_padding(school: School) -> None:
    rows = read_rows(school.tokens, 128)
    records = metrics(school.pretrained)
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    assert records[-1]["real_tokens"] == sum(map(len, rows)) == records[-1]["tokens"]
    assert records[0]["real_tokens"] == sum(map(len, rows[:BATCH]))


def test_examples_are_cut_to_the_sequence(school: School) -> None:
    whole, cut = read_rows(school.tokens, 10**6), read_rows(school.tokens, 50)
    assert all(row[-1] == EOS for row in whole)
    assert [row.tolist() for row in cut] == [row[:50].tolist() for row in whole]


def test_two_examples_are_learned_by_heart(school: School, tmp_path: Path) -> None:
    rows = [row.tolist() for row in read_rows(school.tokens, 128)[:2]]
    steps = 120
    ids = torch.tensor([token for row in rows * steps for token in row])
    lengths = torch.tensor([0, *[len(row) for row in rows * steps]])
    save_file({"ids": ids, "offsets": lengths.cumsum(0)}, tmp_path / "tokens.safetensors")
    pretrain(pretrain_job(steps=steps, batch=2, lr=0.01), tmp_path / "tokens.safetensors", tmp_path / "out", tmp_path / "state")
    assert metrics(tmp_path / "out")[-1]["loss"] < 0.05
    model = checkpoint.load([tmp_path / "out/step-0120"], torch.device("cpu"), torch.float32)
    shared = next(place for place, pair in enumerate(zip(*rows, strict=False)) if pair[0] != pair[1])
    answers = generate(model, [row[: shared + 1] for row in rows], None, 80)
    assert [answer.ids for (answer,) in answers] == [row[shared + 1 :] for row in rows]


def test_the_receipt_names_hardware_and_parameters(school: School) -> None:
    receipt = read_json(school.pretrained / "receipt.json")
    model = checkpoint.load([school.start], torch.device("cpu"), torch.float32)
    assert receipt["parameters"] == {"total": count_parameters(model), "active": count_parameters(model, active=True)}
    assert (receipt["device"], receipt["precision"], receipt["threads"]) == ("cpu", "float32", 1)
    assert receipt["versions"]["torch"] == torch.__version__
    assert receipt["seconds"] > 0
    assert model.recipe == MODEL


@pytest.mark.parametrize("lr", [1e6, 1e30])
def test_a_loss_that_is_not_finite_stops_the_run_in_one_sentence(school: School, tmp_path: Path, lr: float) -> None:
    with pytest.raises(ValueError, match=r"^step 2 of seed 1: the loss is [^\n]*nan; lower pretraining\.lr$"):
        pretrain(pretrain_job(steps=6, lr=lr), school.tokens, tmp_path / "out", tmp_path / "state")
    assert not (tmp_path / "out").exists()


def test_too_few_examples_are_one_sentence(tmp_path: Path) -> None:
    _, tokens = write_corpus(tmp_path, pretrain_examples=11)
    with pytest.raises(ValueError, match=rf"^{tokens} holds 11 examples; 3 steps of 4 need 12$"):
        pretrain(pretrain_job(steps=3), tokens, tmp_path / "out", tmp_path / "state")


def test_damaged_tokens_are_one_sentence(school: School, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.safetensors"
    shutil.copy(school.tokens, tokens)
    tokens.write_bytes(tokens.read_bytes()[:-100])
    with pytest.raises(ValueError, match=rf"^{tokens} is damaged \([^\n]*\); delete it and run again$"):
        pretrain(pretrain_job(steps=3), tokens, tmp_path / "out", tmp_path / "state")
    with pytest.raises(FileNotFoundError, match="lost"):
        pretrain(pretrain_job(steps=3), tmp_path / "lost", tmp_path / "out", tmp_path / "state")
    assert not (tmp_path / "out").exists()


def test_weight_decay_reaches_every_parameter_and_the_norm_is_clipped(school: School, tmp_path: Path) -> None:
    """With a gradient clipped to nothing, one step multiplies each parameter by 1 - lr * decay."""
    job = pretrain_job(steps=1, checkpoints=(0, 1), weight_decay=0.1, lr=0.5, clip=1e-30)
    pretrain(job, school.tokens, tmp_path / "out", tmp_path / "state")
    before, after = (load_file(tmp_path / "out" / name / "model.safetensors") for name in ("step-0000", "step-0001"))
    for name, tensor in before.items():
        assert torch.allclose(after[name], tensor * 0.95, atol=1e-6), name
    assert metrics(tmp_path / "out")[0]["grad_norm"] > 0.1
