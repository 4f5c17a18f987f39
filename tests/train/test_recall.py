"""One run of a recall study, whole: files, equal bytes for equal seeds, where answers stand, learning, and what counts as right."""

import math
from typing import Any

import pandas as pd
import pytest
import torch

from glint.config.model import ModelRecipe
from glint.config.recall import RecallJob, RecallRecipe, StageRecipe
from glint.files import read_json
from glint.model.decoder import Decoder, count_parameters
from glint.model.layout import Layout
from glint.tasks.recall import Text, held_out, training_batch
from glint.tasks.tokenizer import BOS, CONTROL_IDS, decode
from glint.train.batches import next_token_batch
from glint.train.recall import RecallTrainer, answer_places, train
from tests.train.tiny import CPU, metrics

MINI = ModelRecipe(width=32, layers=1, heads=2, experts=2, top_k=1, expert_hidden=32, streams=2, window=8, stride=8, context=96)
SHORT: dict[str, Any] = {
    "distances": (8, 16),
    "questions": 4,
    "unasked": 1,
    "letters": 2,
    "nearest": 4,
    "stages": (StageRecipe(length=48, batch=2, steps=1), StageRecipe(length=96, batch=3, steps=1)),
    "held_out": 9,
    "checkpoints": (0, 1, 2),
    "warmup": 0,
}
STEPS = 100
EASY: dict[str, Any] = {
    "distances": (4,),
    "questions": 1,
    "unasked": 0,
    "letters": 2,
    "nearest": 4,
    "stages": (StageRecipe(length=24, batch=32, steps=STEPS),),
    "held_out": 60,
    "checkpoints": (0, STEPS),
    "warmup": 0,
    "lr": 1e-2,
}
"""One name, asked right behind its statement."""
SHALLOW: dict[str, Any] = {"linear": "none", "sparse": "dense", "residual": "single", "streams": 1, "init_std": 0.1}
"""A model that learns it soon: it attends to all bytes before."""


def job(seed=1, model=MINI, **changes):
    return RecallJob(model=model, recall=RecallRecipe(**SHORT | changes), execution=CPU, seed=seed)


@pytest.fixture(scope="module")
def taught():
    """A model that has learned the easy task."""
    trainer = RecallTrainer(job(3, ModelRecipe(**MINI.model_dump() | SHALLOW), **EASY))
    while trainer.step < STEPS:
        trainer.advance()
    return trainer


def test_every_file_is_written_and_every_question_is_scored_at_every_checkpoint(tmp_path):
    train(job(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"predictions.parquet", "metrics.jsonl", "receipt.json"}
    rows = pd.read_parquet(tmp_path / "predictions.parquet")
    asked = [
        (text, question.answer, question.distance, question.candidates)
        for text, own in enumerate(held_out(job().recall))
        for question in own.questions
    ]
    assert len(asked) == 9 * 4
    for step in (0, 1, 2):
        own = rows[rows["step"] == step]
        assert list(own[["text", "position", "distance", "candidates"]].itertuples(index=False, name=None)) == asked
    assert len(rows) == 3 * len(asked)
    assert (rows["log_prob"] < 0).all()
    assert set(rows["seed"]) == {1}
    receipt = read_json(tmp_path / "receipt.json")
    decoder = Decoder(MINI)
    assert receipt["parameters"] == {"total": count_parameters(decoder), "active": count_parameters(decoder, active=True)}
    assert (receipt["updates"], receipt["bytes"]) == (2, 2 * 48 + 3 * 96)
    assert [(record["step"], record["bytes"]) for record in metrics(tmp_path)] == [(1, 96), (2, 384)]


def test_before_training_every_id_is_about_equally_likely():
    trainer = RecallTrainer(job(held_out=50))
    rows = pd.DataFrame(trainer.score(held_out(trainer.job.recall)))
    assert -rows["log_prob"].mean() / 2 == pytest.approx(math.log(260), abs=0.15)


def test_one_seed_gives_the_same_bytes_twice_and_another_seed_others(tmp_path):
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        train(job(seed), tmp_path / name)
    one, two, other = (pd.read_parquet(tmp_path / name / "predictions.parquet")["log_prob"].tolist() for name in ("one", "two", "other"))
    assert one == two != other
    assert metrics(tmp_path / "one") == metrics(tmp_path / "two")


@pytest.mark.parametrize(("dtype", "lengths"), [(torch.float32, (80,) * 5), (torch.bfloat16, (80, 80, 80, 80, 96))])
def test_answers_stand_where_their_bytes_are_predicted(dtype, lengths):
    """Also where bf16 lengthens the last row, for 5 x 80 tokens are no multiple of 32."""
    plan = RecallRecipe(**SHORT | {"stages": (StageRecipe(length=80, batch=5, steps=2),)})
    texts = training_batch(plan, 1, 0)
    rows = [[BOS, *(CONTROL_IDS + byte for byte in text.content)] for text in texts]
    inputs_N, targets_N, layout = next_token_batch(rows, dtype, 96)
    assert layout.lengths == lengths
    places_QA = answer_places(texts, 2, layout)
    asked = [(text.content, question.answer) for text in texts for question in text.questions]
    assert len(places_QA) == len(asked)
    for places_A, (content, answer) in zip(places_QA, asked, strict=True):
        assert decode(targets_N[places_A].tolist()) == content[answer : answer + 2]
        assert decode(inputs_N[places_A[0] - 1 : places_A[0] + 1].tolist()) == content[answer - 2 : answer]
        assert content[answer - 2 : answer - 1] == b"?"


def test_a_step_lowers_the_loss_of_all_bytes_and_that_of_the_answers_by_its_weight():
    """Against the losses of one text after another, and the norm of their gradient."""
    trainer = RecallTrainer(job(answer_weight=3.0, warmup=4))
    losses, answers = [], []
    for text in training_batch(trainer.job.recall, 1, 0):
        ids = torch.tensor([BOS, *(CONTROL_IDS + byte for byte in text.content)])
        log_probs_TV = torch.log_softmax(trainer.model.logits(trainer.model(ids[:-1], Layout((48,))).final_ND), -1)
        losses += [-log_probs_TV[place, ids[place + 1]] for place in range(48)]
        answers += [losses[place - 48] for question in text.questions for place in (question.answer, question.answer + 1)]
    loss, answer_loss = torch.stack(losses).mean(), torch.stack(answers).mean()
    gradients = torch.autograd.grad(loss + 3 * answer_loss, list(trainer.model.parameters()))
    trainer.advance()
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    found = [trainer.metrics[0][name] for name in ("loss", "answer_loss", "grad_norm")]
    assert found == pytest.approx([loss.item(), answer_loss.item(), norm.item()], rel=1e-4)
    assert [group["lr"] for group in trainer.optimiser.param_groups] == [trainer.job.recall.lr / 4] * len(trainer.optimiser.param_groups)


def test_indexers_and_the_bias_of_a_router_learn_too():
    """No weight decays here, so what changes has been taught."""
    model = ModelRecipe(**MINI.model_dump() | {"linear": "none", "sparse": "indexed", "router": "sigmoid"})
    trainer = RecallTrainer(job(model=model, weight_decay=0.0))
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    trainer.advance()
    changed = {name for name, tensor in trainer.model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed >= {f"blocks.0.{name}" for name in ("router_bias", "index_query", "index_key", "index_weight")}
    assert trainer.metrics[0]["divergence"] > 0


def test_a_name_right_behind_its_statement_is_learned(taught):
    """Whoever knows that small letters come, and not which, has a log-probability of -2 ln 26, and one right answer in 676."""
    rows = pd.DataFrame(taught.score(held_out(taught.job.recall)))
    assert rows["log_prob"].mean() > -math.log(26)
    assert rows["right"].mean() > 0.5


def test_an_answer_is_right_only_if_all_its_letters_are_the_likeliest(taught):
    """Against one forward pass a byte, of the text up to it alone; some texts ask for another letter than they state."""
    texts = held_out(taught.job.recall)[:18]
    texts = [misspelt(text, place % 3) for place, text in enumerate(texts)]
    seen = set()
    for text, row in zip(texts, taught.score(texts), strict=True):
        hits, log_prob = [], 0.0
        for place in range(row["position"], row["position"] + 2):
            ids = torch.tensor([BOS, *(CONTROL_IDS + byte for byte in text.content[:place])])
            with torch.no_grad():
                log_probs_V = torch.log_softmax(taught.model.logits(taught.model(ids, Layout((len(ids),))).final_ND[-1]), -1)
            hits.append(log_probs_V.argmax().item() == CONTROL_IDS + text.content[place])
            log_prob += log_probs_V[CONTROL_IDS + text.content[place]].item()
        assert row["right"] == all(hits)
        assert row["log_prob"] == pytest.approx(log_prob, abs=1e-3)
        seen.add(tuple(hits))
    assert seen >= {(True, True), (False, True), (True, False)}


def misspelt(text, letter):
    """Return `text` with another letter at place `letter` of its one answer; none where it has no such place."""
    place = text.questions[0].answer + letter
    content = bytearray(text.content)
    if letter < 2:
        content[place] = ord("a") + (content[place] - ord("a") + 1) % 26
    return Text(bytes(content), text.questions)


def test_a_loss_that_is_no_number_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"step \d of seed 1: the loss is .* lower recall.lr"):
        train(job(lr=1e30, stages=(StageRecipe(length=96, batch=2, steps=5),), checkpoints=(0, 5)), tmp_path)
    assert not list(tmp_path.iterdir())
