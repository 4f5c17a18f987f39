"""Tracing a run: probabilities against the decoder's own forward, ranks, texts read back, routing, and the weights before any training."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from glint import trace as module
from glint.asking import judged, read_tasks
from glint.config.evaluation import EvaluateJob, EvaluationRecipe
from glint.config.model import ModelRecipe
from glint.config.trace import TraceJob
from glint.evaluate import evaluate
from glint.generate import NEVER_SAMPLED
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.model.layout import Layout
from glint.randomness import torch_generator
from glint.report.explorer import next_bytes as next_bytes_of_the_page
from glint.tasks.tokenizer import EOS, encode
from glint.trace import NEXT_BYTES, ROUTING, Reading, Text, next_byte_rows, read, shown_tasks, token_ids, trace
from glint.verify import Verdict
from tests.mechanisms.weights import recipe as faithful_recipe
from tests.train.tiny import CPU, MODEL, School, rl_job

EVALUATION = EvaluationRecipe(k=(1,), max_new_tokens=24, property_inputs=100)
FAITHFUL = faithful_recipe(context=160, init_std=0.1)
DENSE = ModelRecipe(linear="none", sparse="dense", residual="single", ffn="dense", width=32, layers=2, heads=2, ffn_hidden=48, context=160)
FP32 = torch.float32


def trace_job(**changes: Any) -> TraceJob:
    facts: dict[str, Any] = {"seed": 2, "start_seed": 1, "checkpoint": "groups-008", "split": "confirm"} | changes
    return TraceJob(model=MODEL, evaluation=EVALUATION, execution=CPU, **facts)


@pytest.fixture(scope="module")
def run(school: School, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return policies and completions of a short RL run, by `before` and `after`."""
    folder = tmp_path_factory.mktemp("run")
    trained = school.train(rl_job(groups=8, lr=5e-3), folder)
    policies = {"before": (school.start,), "after": (school.start, trained / "groups-008")}
    asked = EvaluateJob(evaluation=EVALUATION, execution=CPU, split="confirm", sampled=False, seed=2)
    for name, folders in policies.items():
        evaluate(asked, {name: folders}, school.examples, folder / f"{name}.parquet")
    return {"policies": policies, "completions": {name: folder / f"{name}.parquet" for name in policies}}


@pytest.fixture(scope="module")
def traced(school: School, run: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("traced")
    receipt = trace(trace_job(), run["policies"], run["completions"], school.examples, out)
    assert receipt["completions"] == len(pd.read_parquet(out / "random.parquet"))
    return out


@pytest.fixture(scope="module")
def next_bytes(traced: Path) -> pd.DataFrame:
    return pd.read_parquet(traced / "next_bytes.parquet")


def softmax_of_forward(model: Decoder, prompt: list[int], completion: list[int]) -> np.ndarray[Any, Any]:
    """Return the probabilities [T, V] of the completion's tokens, one row alone, by numpy from the decoder's logits."""
    row = [*prompt, *completion]
    with torch.no_grad():
        logits = model.logits(model(torch.tensor(row), Layout((len(row),))).final_ND).double().numpy()
    logits[:, list(NEVER_SAMPLED)] = -np.inf
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray((weights / weights.sum(1, keepdims=True))[len(prompt) - 1 : -1])


def test_columns_and_the_task_that_is_shown(next_bytes: pd.DataFrame, school: School) -> None:
    examples = pd.read_parquet(school.examples)
    lowest = examples[examples["split"] == "confirm"].groupby("family")["identity"].min()
    assert next_bytes.columns.tolist() == NEXT_BYTES
    assert next_bytes[["family", "identity"]].drop_duplicates().set_index("family")["identity"].to_dict() == lowest.to_dict()
    assert set(next_bytes["answer"]) == set(next_bytes["policy"]) == {"before", "after"}
    assert (
        next_bytes.groupby(["family", "answer", "position", "policy"])["rank"].apply(list).map(lambda rank: rank == [0, 1, 2, 3, 4]).all()
    )


def test_what_was_written_is_the_greedy_completion_of_the_evaluation(next_bytes: pd.DataFrame, run: dict[str, Any]) -> None:
    for (identity, name), rows in next_bytes.groupby(["identity", "answer"]):
        given = rows.drop_duplicates("position").sort_values("position")["given"].tolist()
        table = pd.read_parquet(run["completions"][name])
        row = table[(table["identity"] == identity) & (table["stop"] == "parses")].iloc[0]
        assert judged(given, row["ended"], Verdict("passed", "", 0, 0, 0.0))["completion"] == row["completion"]
        assert len(given) == row["tokens"]


def test_a_greedy_answer_holds_the_likeliest_token_of_its_own_policy(next_bytes: pd.DataFrame) -> None:
    own = next_bytes[(next_bytes["answer"] == next_bytes["policy"]) & (next_bytes["rank"] == 0)]
    assert (own["given"] == own["token"]).all()
    assert (own["given_probability"] == own["probability"]).all()


def test_probabilities_are_the_softmax_of_the_decoders_forward(next_bytes: pd.DataFrame, school: School, run: dict[str, Any]) -> None:
    prompts = {task.identity: encode(task.prompt) for task in read_tasks(school.examples, "confirm", ())}
    models = {name: checkpoint.load(folders, torch.device("cpu"), FP32) for name, folders in run["policies"].items()}
    for (identity, _, policy), rows in next_bytes.groupby(["identity", "answer", "policy"]):
        first = rows[rows["rank"] == 0].sort_values("position")
        expected = softmax_of_forward(models[str(policy)], prompts[str(identity)], first["given"].tolist())
        assert np.allclose(first["given_probability"], expected[np.arange(len(first)), first["given"]], rtol=1e-4, atol=1e-7)
        for position in range(len(first)):
            best = rows[rows["position"] == position].sort_values("rank")
            assert np.allclose(best["probability"], np.sort(expected[position])[::-1][:5], rtol=1e-4, atol=1e-7)
            assert np.allclose(best["probability"], expected[position][best["token"]], rtol=1e-4, atol=1e-7)
    assert not set(next_bytes["token"]) & set(NEVER_SAMPLED)


def test_of_equally_likely_tokens_the_lowest_id_comes_first(school: School) -> None:
    text = Text(shown_tasks(school.examples, "confirm")[0], "before", [1, 50], [9])
    probabilities = torch.zeros(260, dtype=torch.float64)
    probabilities[[9, 200, 30, 31, 40, 41]] = torch.tensor([0.1, 0.4, 0.1, 0.1, 0.1, 0.2], dtype=torch.float64)
    rows = pd.DataFrame(next_byte_rows([text], {"before": Reading([probabilities[None]], [{}])}), columns=NEXT_BYTES)
    assert rows["token"].tolist() == [200, 41, 9, 30, 31]
    assert (rows["given_probability"] == 0.1).all()


def routes_of(model: Decoder, row: list[int], monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """Return by layer what the router chose while one row alone went through `model`."""
    seen: dict[int, Any] = {}
    for layer, block in model.layers():
        choose = getattr(block.feed_forward, "choose", None)
        if choose is not None:

            def keep(x: Any, weights: Any, choose: Any = choose, layer: int = layer) -> Any:
                seen[layer] = choose(x, weights)
                return seen[layer]

            monkeypatch.setattr(block.feed_forward, "choose", keep)
    with torch.no_grad():
        model(torch.tensor(row), Layout((len(row),)))
    return seen


@pytest.mark.parametrize("recipe", [MODEL, FAITHFUL, DENSE], ids=["hybrid", "faithful", "dense"])
def test_reading_any_model_gives_forwards_probabilities_and_the_routers_choices(
    recipe: ModelRecipe, school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        Text(task, "after", encode(task.prompt), [*encode(body, bos=False), EOS])
        for task, body in zip(shown_tasks(school.examples, "confirm"), ["    return x + 1\n", "    x\n"], strict=True)
    ]
    model, alone = (Decoder(recipe).initialise(torch_generator(5, "init")).freeze() for _ in range(2))
    reading = read(model, texts)
    for index, text in enumerate(texts):
        expected = softmax_of_forward(alone, text.prompt, text.completion)
        assert np.allclose(reading.probabilities[index].numpy(), expected, rtol=1e-3, atol=1e-7)
        chosen = routes_of(alone, text.read, monkeypatch)
        assert set(reading.routes[index]) == set(chosen) == {i for i in range(recipe.layers) if recipe.feed_forward(i) != "dense"}
        for layer, (weights, experts) in chosen.items():
            assert torch.equal(reading.routes[index][layer][1], experts)
            assert torch.allclose(reading.routes[index][layer][0], weights.float(), rtol=1e-3, atol=1e-5)


def test_routing_names_every_token_that_the_policy_after_rl_read_of_its_own_answer(
    traced: Path, next_bytes: pd.DataFrame, school: School
) -> None:
    routing = pd.read_parquet(traced / "routing.parquet")
    assert routing.columns.tolist() == ROUTING
    assert routing["weight"].between(0, 1).all()
    for family, rows in routing.groupby("family"):
        task = next(task for task in shown_tasks(school.examples, "confirm") if task.family == family)
        own = next_bytes[(next_bytes["family"] == family) & (next_bytes["answer"] == "after")].drop_duplicates("position")
        text = [*encode(task.prompt), *own["given"]][:-1]
        for _, layer in rows.groupby("layer"):
            assert layer.sort_values("position")["token"].tolist() == text
    assert routing["layer"].unique().tolist() == list(range(MODEL.layers))


def test_a_model_that_does_not_route_has_a_header_alone(school: School, tmp_path: Path) -> None:
    model = Decoder(DENSE).initialise(torch_generator(1, "init"))
    checkpoint.save(model, tmp_path / "dense")
    policies = dict.fromkeys(("before", "after"), (tmp_path / "dense",))
    asked = EvaluateJob(evaluation=EVALUATION, execution=CPU, split="confirm", sampled=False, seed=2)
    evaluate(asked, {"before": policies["before"]}, school.examples, tmp_path / "before.parquet")
    job = trace_job().model_copy(update={"model": DENSE})
    trace(job, policies, dict.fromkeys(policies, tmp_path / "before.parquet"), school.examples, tmp_path / "out")
    routing = pd.read_parquet(tmp_path / "out/routing.parquet")
    assert (routing.columns.tolist(), len(routing)) == (ROUTING, 0)


def test_random_weights_are_those_with_which_the_pretraining_of_that_seed_began(school: School, traced: Path, tmp_path: Path) -> None:
    asked = EvaluateJob(evaluation=EVALUATION, execution=CPU, split="dev", sampled=False, seed=1)
    evaluate(asked, {"step-0000": (school.pretrained / "step-0000",)}, school.examples, tmp_path / "dev.parquet")
    expected = pd.read_parquet(tmp_path / "dev.parquet")
    shown = [task.identity for task in shown_tasks(school.examples, "dev")]
    expected = expected[expected["identity"].isin(shown)].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_parquet(traced / "random.parquet"), expected)
    first = checkpoint.load([school.pretrained / "step-0000"], torch.device("cpu"), FP32).state_dict()
    assert all(torch.equal(tensor, first[name]) for name, tensor in module.random_model(trace_job(), FP32).state_dict().items())


def test_a_run_from_its_own_pretraining_has_the_random_weights_of_its_own_seed() -> None:
    own, named = (module.random_model(trace_job(**seeds), FP32) for seeds in ({"seed": 7, "start_seed": None}, {"start_seed": 7}))
    assert torch.equal(own.embedding, named.embedding)


@pytest.mark.parametrize(
    ("written", "ended"),
    [(b"    return x\n", "parses"), (b"\xff\xe9A", "length"), ("é ✓\n".encode(), "length"), (rb"\xff", "length"), (b"a\n", "eos")],
)
def test_the_tokens_behind_a_judged_answer_are_found_again(written: bytes, ended: str) -> None:
    ids = [4 + byte for byte in written] + [EOS] * (ended == "eos")
    row = judged(ids, ended, Verdict("passed", "", 0, 0, 0.0))
    assert token_ids(row["completion"], row["ended"], row["tokens"]) == ids


def test_an_answer_of_bytes_and_their_spelling_is_left_out_and_the_others_are_shown(
    school: School, run: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = judged([4 + byte for byte in rb"\xff" + b"\xff"], "length", Verdict("failed", "", 0, 1, 0.0))
    assert token_ids(row["completion"], row["ended"], row["tokens"]) is None
    answers = pd.read_parquet(run["completions"]["after"])
    double = answers["family"] == "double"
    for name in ("completion", "ended", "tokens"):
        answers.loc[double, name] = row[name]
    answers.to_parquet(tmp_path / "mixed.parquet", index=False)
    for name, left in (("mixed", {"double"}), ("all", set(answers["family"]))):
        completions = dict(run["completions"]) | {"after": tmp_path / "mixed.parquet"}
        if name == "all":
            everything = answers.assign(completion=row["completion"], ended=row["ended"], tokens=row["tokens"])
            everything.to_parquet(tmp_path / "all.parquet", index=False)
            completions = dict.fromkeys(("before", "after"), tmp_path / "all.parquet")
        trace(trace_job(), run["policies"], completions, school.examples, tmp_path / name)
        table = pd.read_parquet(tmp_path / name / "next_bytes.parquet")
        own = table[table["answer"] == "after"]
        assert set(own["family"]) == set(answers["family"]) - left
        next_bytes_of_the_page(tmp_path / name / "next_bytes.parquet")
    assert "left out" in capsys.readouterr().out


def test_a_missing_answer_and_an_empty_split_are_one_sentence(school: School, run: dict[str, Any], tmp_path: Path) -> None:
    other = pd.read_parquet(run["completions"]["after"])
    other[other["family"] != "double"].to_parquet(tmp_path / "half.parquet", index=False)
    completions = run["completions"] | {"after": tmp_path / "half.parquet"}
    with pytest.raises(ValueError, match=r"half.parquet has no greedy completion of double_"):
        trace(trace_job(), run["policies"], completions, school.examples, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="has no tasks in split 'nowhere'"):
        trace(trace_job(split="nowhere"), run["policies"], run["completions"], school.examples, tmp_path / "out")
