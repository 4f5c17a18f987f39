"""Scores of expressions: teacher forcing by hand, on a model that is known by heart, and by running what is written."""

import json

import pandas as pd
import pytest
import torch

from glint.config.expressions import ExpressionsRecipe
from glint.model.decoder import Decoder
from glint.scoring import Scored, predicted, score, write_and_run
from glint.tasks.expressions import draw_examples
from glint.tasks.tokenizer import encode
from glint.verify import Verifier
from tests.train.tiny import MODEL


@pytest.fixture(scope="module")
def model():
    return Decoder(MODEL).initialise(torch.Generator().manual_seed(3)).freeze()


@pytest.fixture(scope="module")
def examples():
    return draw_examples(ExpressionsRecipe(evaluation_examples=1, examples=8), 4, 1)


def test_predicted_tokens_are_those_of_one_example_at_a_time(model):
    """Each target token against the likeliest one after a prefix of its own, read without packing."""
    prompts, targets = [encode("# ab"), encode("# a longer one"), encode("")], [[40, 7, 99], [12], [5, 5, 5, 5, 80]]
    first = [model.prefill([prompt])[0].argmax(-1).item() for prompt in prompts]
    targets[1] = [first[1]]  # one that is right
    targets[2][0] = first[2]
    expected = [
        [model.prefill([prompt + target[:length]])[0].argmax(-1).item() == target[length] for length in range(len(target))]
        for prompt, target in zip(prompts, targets, strict=True)
    ]
    assert predicted(model, prompts, targets) == expected
    assert expected[1] == [True]
    assert not all(expected[0])


def test_scores_count_the_bytes_of_the_expression_alone(model, examples, monkeypatch):
    scored = Scored.all_of(examples)
    assert len(scored) == 120
    rows = pd.DataFrame(score(model, scored))
    assert rows["bytes"].tolist() == [len(one.target) for one in scored]
    assert rows["identity"].tolist() == examples.loc[examples["split"] != "pretrain", "identity"].tolist()
    assert (rows["right"] <= rows["bytes"]).all()
    monkeypatch.setattr("glint.scoring.ROWS_AT_A_TIME", 7)
    assert score(model, scored) == rows.to_dict("records")


def test_what_is_written_is_run(examples, monkeypatch):
    """The target passes, another form of it passes too, a wrong one fails, a broken one is rejected."""
    scored = [one for one in Scored.all_of(examples) if one.split == "held_out"][:4]
    lines = [f"{scored[0].target}\n", f"0 + ({scored[1].target})\n", f"{scored[2].target} + 1\n", "((n\n"]
    answers = [type("Answer", (), {"ids": encode(line, bos=False), "ended": "parses"})() for line in lines]
    monkeypatch.setattr("glint.scoring.generate", lambda *_, **__: [[answer] for answer in answers])
    with Verifier() as verifier:
        rows = write_and_run(None, scored, 32, verifier)  # type: ignore[arg-type]
    assert [row["verdict"] for row in rows] == ["passed", "passed", "failed", "invalid"]
    assert [row["completion"] for row in rows] == lines
    assert [row["target"] for row in rows] == [one.target for one in scored]
    assert {row["ended"] for row in rows} == {"newline"}
    assert [row["cases_total"] for row in rows] == [len(json.loads(one.task.cases)) for one in scored]


def test_a_written_line_ends_at_its_newline_or_its_length(model, examples):
    scored = Scored.all_of(examples)[:5]
    with Verifier() as verifier:
        rows = write_and_run(model, scored, 6, verifier)
    assert all(row["tokens"] <= 6 for row in rows)
    assert {row["ended"] for row in rows} <= {"newline", "eos", "length"}
    assert {row["verdict"] for row in rows} <= {"invalid", "failed", "passed"}
