"""Held-out loss: against the float64 decoder token by token, however rows are batched, on what pretraining reads."""

import math

import pandas as pd
import pytest
import torch

from glint.config.heldout import HeldOutJob
from glint.heldout import by_source, measure, summed_losses
from glint.tasks.corpus import token_rows
from glint.train.pretrain import read_rows
from tests.reference import hybrid
from tests.reference.adapter import decoder
from tests.train.tiny import CPU, MODEL, STEPS

LENGTHS = (2, 21, 9, 13, 9)


@pytest.fixture(scope="module")
def weights():
    return hybrid.random_weights(MODEL, torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(4, 260, (length,), generator=generator).tolist() for length in LENGTHS]


def test_a_row_sums_minus_log_p_of_all_its_tokens_but_the_first(weights, rows):
    expected = []
    for row in rows:
        logits_TV = hybrid.forward(weights, MODEL, torch.tensor([row[:-1]]))[0][0].tolist()
        by_hand = [math.log(sum(map(math.exp, logits_V))) - logits_V[token] for logits_V, token in zip(logits_TV, row[1:], strict=True)]
        expected.append(sum(by_hand))
    assert summed_losses(decoder(weights, MODEL).freeze(), rows) == pytest.approx(expected, rel=1e-5)


def test_batches_change_nothing(weights, rows, monkeypatch):
    model = decoder(weights, MODEL).freeze()
    together = summed_losses(model, rows)
    monkeypatch.setattr("glint.heldout.ROWS_AT_A_TIME", 2)
    assert summed_losses(model, rows) == pytest.approx(together, rel=1e-6)
    assert summed_losses(model, rows[::-1]) == pytest.approx(together[::-1], rel=1e-6)


def test_a_source_is_the_mean_over_its_tokens_and_all_that_over_every_token():
    found = by_source(["even", "double", "even"], [[1] * 4, [1] * 2, [1] * 6], [6.0, 5.0, 2.0])
    assert found.to_dict("records") == [
        {"source": "even", "tokens": 8, "examples": 2, "loss": 1.0},
        {"source": "double", "tokens": 1, "examples": 1, "loss": 5.0},
        {"source": "all", "tokens": 9, "examples": 3, "loss": 13 / 9},
    ]


def test_the_examples_are_those_of_the_split_as_pretraining_reads_them(school):
    examples = pd.read_parquet(school.examples)
    trained = token_rows(examples[examples["split"] == "pretrain"])
    for sequence in (20, 128):
        assert [row[:sequence] for row in trained] == [row.tolist() for row in read_rows(school.tokens, sequence)]


def test_checkpoints_are_measured_on_the_split_cut_to_the_sequence(school, tmp_path):
    names = ("step-0000", f"step-{STEPS:04d}")
    job = HeldOutJob(execution=CPU, split="confirm", sequence=64, checkpoints=names, seed=1)
    receipt = measure(job, school.pretrained, school.examples, tmp_path / "loss.parquet")
    rows = pd.read_parquet(tmp_path / "loss.parquet").to_dict("records")
    sources = ["increment", "double", "all"]
    assert [(row["step"], row["source"]) for row in rows] == [(step, source) for step in (0, STEPS) for source in sources]
    assert [row["tokens"] for row in rows] == [2 * 63, 2 * 63, 4 * 63] * 2
    assert rows[2]["loss"] == pytest.approx(math.log(260), abs=0.1)  # random weights know nothing
    assert rows[5]["loss"] < 2
    assert receipt["seconds"] > 0


def test_a_split_without_examples_is_refused(school, tmp_path):
    job = HeldOutJob(execution=CPU, split="confrm", sequence=64, checkpoints=("step-0000",), seed=1)
    with pytest.raises(ValueError, match=r"examples\.parquet has no examples in split 'confrm'"):
        measure(job, school.pretrained, school.examples, tmp_path / "loss.parquet")
    assert not (tmp_path / "loss.parquet").exists()
