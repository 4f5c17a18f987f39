"""One run of a pretraining study, whole: files, equal bytes for equal seeds, and learning what it is shown."""

import pandas as pd
import pytest

from glint.config.expressions import ExpressionsJob, ExpressionsRecipe
from glint.config.pretraining import PretrainingRecipe
from glint.files import read_json
from glint.train.expressions import train
from tests.train.tiny import CPU, MODEL, metrics

STEPS, BATCH = 60, 8
PLAN = ExpressionsRecipe(
    structures=2, examples=STEPS * BATCH, evaluation_examples=1, checkpoints=(2, 30, STEPS), generation_steps=(2, STEPS), cases_per_task=3
)


def job(steps=STEPS, seed=1, **changes):
    pretraining = PretrainingRecipe(steps=steps, batch=BATCH, lr=0.01, weight_decay=0.0, first_checkpoint=steps)
    return ExpressionsJob(model=MODEL, pretraining=pretraining, expressions=PLAN.model_copy(update=changes), execution=CPU, seed=seed)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("expressions")
    train(job(), out)
    return out


def test_every_file_is_written(run):
    names = ("examples.parquet", "tokens.safetensors", "scores.parquet", "completions.parquet", "metrics.jsonl", "receipt.json")
    assert {path.name for path in run.iterdir()} == set(names)
    assert [record["step"] for record in metrics(run)] == list(range(1, STEPS + 1))
    receipt = read_json(run / "receipt.json")
    assert (receipt["precision"], receipt["threads"]) == ("float32", 1)
    assert receipt["parameters"]["total"] > 0


def test_every_structure_is_scored_at_every_checkpoint(run):
    scores, completions = (pd.read_parquet(run / f"{name}.parquet") for name in ("scores", "completions"))
    assert scores.groupby("step").size().to_dict() == dict.fromkeys(PLAN.checkpoints, 120)
    assert completions.groupby("step").size().to_dict() == dict.fromkeys(PLAN.generation_steps, 120)
    assert scores.groupby("split").size().to_dict() == {"held_out": 3 * 32, "trained": 3 * 88}


def test_the_structures_that_it_trains_on_are_learned_best(run):
    scores = pd.read_parquet(run / "scores.parquet")
    sums = (
        scores[scores["split"] == "trained"]
        .assign(shown=lambda rows: rows["block"] < 2)
        .groupby(["step", "shown"])[["right", "bytes"]]
        .sum()
    )
    accuracy = sums["right"] / sums["bytes"]
    assert accuracy[STEPS, True] > max(0.6, accuracy[STEPS, False] + 0.1, accuracy[2, True] + 0.3)


def test_one_seed_gives_the_same_bytes_twice(tmp_path):
    short = {"examples": 2 * BATCH, "checkpoints": (1, 2), "generation_steps": (2,)}
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        train(job(2, seed, **short), tmp_path / name)
    for file in ("scores.parquet", "completions.parquet", "examples.parquet", "tokens.safetensors"):
        one, two, other = ((tmp_path / name / file).read_bytes() for name in ("one", "two", "other"))
        assert one == two
    assert metrics(tmp_path / "one") == metrics(tmp_path / "two") != metrics(tmp_path / "other")
    assert one != other
