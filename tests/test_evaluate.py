"""Evaluation: the columns, one decoding for both stop rules, two judges, the canary, and faults in one sentence."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from glint import evaluate as module
from glint.asking import Task, read_tasks
from glint.config.evaluation import EvaluateJob, EvaluationRecipe
from glint.evaluate import Judge, evaluate, stopped
from glint.generate import Completion, generate
from glint.model import checkpoint
from glint.tasks.tokenizer import EOS, encode
from glint.verify import Verifier
from tests.train.tiny import CPU, School, rl_job

COLUMNS = [
    "checkpoint", "split", "mode", "family", "identity", "seed", "stop", "sample", "completion", "tokens", "ended", "verdict", "reason",
    "cases_passed", "cases_total", "property", "property_passed", "property_total",
]  # fmt: skip
KEYS = ["checkpoint", "mode", "identity", "sample"]


def job(split: str = "confirm", sampled: bool = True, families: tuple[str, ...] = (), seed: int = 3, **changes: Any) -> EvaluateJob:
    recipe: dict[str, Any] = {"samples": 3, "k": (1, 3), "temperature": 1.0, "max_new_tokens": 24, "property_inputs": 100} | changes
    return EvaluateJob(evaluation=EvaluationRecipe(**recipe), execution=CPU, split=split, sampled=sampled, families=families, seed=seed)


def run(school: School, folder: Path, asked: EvaluateJob, *names: str) -> pd.DataFrame:
    """Evaluate checkpoints of the school (the last one, if none is named) and return the table."""
    checkpoints: dict[str, tuple[Path, ...]] = {name: (school.pretrained / name,) for name in names or (school.start.name,)}
    out = folder / "completions.parquet"
    evaluate(asked, checkpoints, school.examples, out)
    return pd.read_parquet(out)


@pytest.fixture(scope="module")
def table(school: School, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return run(school, tmp_path_factory.mktemp("evaluation"), job(), "step-0000", school.start.name)


def test_columns_and_rows(table: pd.DataFrame, school: School) -> None:
    assert table.columns.tolist() == COLUMNS
    examples = pd.read_parquet(school.examples)
    asked = examples[examples["split"] == "confirm"]
    assert len(asked) == 4
    for (_, stop, mode), rows in table.groupby(["checkpoint", "stop", "mode"]):
        samples = 1 if mode == "greedy" else 3
        assert sorted(rows["identity"]) == sorted(asked["identity"].tolist() * samples), stop
        assert sorted(rows["sample"]) == sorted(list(range(samples)) * 4)
    assert len(table) == 2 * 2 * 4 * (1 + 3)
    assert set(table["split"]) == {"confirm"}
    assert set(table["seed"]) == {3}
    families = asked.set_index("identity")["family"]
    assert (table["family"] == table["identity"].map(families)).all()


def test_values_are_those_of_the_data_dictionary(table: pd.DataFrame) -> None:
    assert set(table["stop"]) == {"parses", "eos"}
    assert set(table["ended"]) <= {"parses", "eos", "length"}
    assert set(table["verdict"]) <= {"passed", "failed", "invalid"} >= set(table["property"])
    assert (table["cases_total"] == 3).all()
    assert (table["property_total"] == 100).all()
    assert ((table["cases_passed"] == 3) == (table["verdict"] == "passed")).all()
    assert ((table["property_passed"] == 100) == (table["property"] == "passed")).all()
    assert not ((table["stop"] == "eos") & (table["ended"] == "parses")).any()
    assert (table.loc[table["ended"] == "length", "tokens"] == 24).all()


def test_the_trained_model_does_better_than_random_weights(table: pd.DataFrame) -> None:
    passed = (table["verdict"] == "passed").groupby(table["checkpoint"]).mean()
    assert passed["step-0000"] == 0
    assert 0.1 < passed["step-0120"] < 0.95
    assert ((table["verdict"] == "invalid") | (table["checkpoint"] == "step-0120")).all()


def test_what_stops_on_parsing_is_a_prefix_of_what_stops_on_eos(table: pd.DataFrame) -> None:
    both = table.pivot(index=KEYS, columns="stop", values=["completion", "ended", "tokens"])
    assert all(whole.startswith(part) for part, whole in zip(both["completion", "parses"], both["completion", "eos"], strict=True))
    early = both["ended", "parses"] == "parses"
    assert early.any()
    assert (both["tokens", "parses"] < both["tokens", "eos"]).eq(early).all()
    assert (both["ended", "parses"] == both["ended", "eos"]).eq(~early).all()


def test_one_decoding_serves_both_stop_rules(school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(*arguments: Any, **named: Any) -> list[list[Completion]]:
        calls.append(len(arguments[1]))
        return generate(*arguments, **named)

    monkeypatch.setattr(module, "generate", counted)
    run(school, tmp_path, job())
    assert calls == [4, 4]


def test_batches_change_nothing(school: School, table: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_AT_A_TIME", 4)
    small = run(school, tmp_path, job(), "step-0000", school.start.name)
    pd.testing.assert_frame_equal(small, table)


def test_equal_jobs_write_equal_bytes_and_another_seed_samples_anew(school: School, table: pd.DataFrame, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run(school, tmp_path / name, job())
    assert (tmp_path / "one/completions.parquet").read_bytes() == (tmp_path / "two/completions.parquet").read_bytes()
    other = run(school, tmp_path / "other", job(seed=4))
    own = table[table["checkpoint"] == school.start.name].reset_index(drop=True)
    greedy = other["mode"] == "greedy"
    assert other.loc[greedy, "completion"].tolist() == own.loc[own["mode"] == "greedy", "completion"].tolist()
    assert other.loc[~greedy, "completion"].tolist() != own.loc[own["mode"] == "sampled", "completion"].tolist()


def test_greedy_alone_and_families_alone(school: School, tmp_path: Path) -> None:
    rows = run(school, tmp_path, job(sampled=False, families=("double",), stops=("eos",)))
    assert len(rows) == 2
    assert (set(rows["mode"]), set(rows["family"]), set(rows["stop"])) == ({"greedy"}, {"double"}, {"eos"})


def test_a_checkpoint_of_rl_is_laid_over_its_start(school: School, tmp_path: Path) -> None:
    trained = school.train(rl_job(groups=8, lr=5e-3), tmp_path)
    checkpoints = {"groups-000": (school.start,), "groups-008": (school.start, trained / "groups-008")}
    evaluate(job(), checkpoints, school.examples, tmp_path / "both.parquet")
    table = pd.read_parquet(tmp_path / "both.parquet")
    assert table["checkpoint"].drop_duplicates().tolist() == ["groups-000", "groups-008"]
    texts = [rows["completion"].tolist() for _, rows in table.groupby("checkpoint")]
    assert texts[0] != texts[1]


def task(identity: str = "increment_abcdefg", cases: str = '[{"argument": 0, "expected": 1}, {"argument": 5, "expected": 6}]') -> Task:
    return Task(0, "increment", identity, "x", f"# Plus one.\ndef {identity}(x):\n", cases)


def answer(text: str) -> Completion:
    return Completion([*encode(text, bos=False), EOS], "eos")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("    return x + 1\n", "    return x + 1\n"),
        ("    return x + 1\n    return x\n", "    return x + 1\n"),
        ("    return x + 1\nprint(1)\n", "    return x + 1\n"),
        ("    return (x\n+ 1)\nmore", "    return (x\n+ 1)\n"),
        ("    return x + 1", None),
        ("    x = = 1\n    return x\n", None),
        ("", None),
    ],
)
def test_stopping_on_parse_cuts_at_the_first_newline_that_completes_the_function(text: str, kept: str | None) -> None:
    whole = answer(text)
    expected = whole if kept is None else Completion(encode(kept, bos=False), "parses")
    assert stopped(task(), whole, "parses") == expected
    assert stopped(task(), whole, "eos") is whole


def test_training_and_evaluation_stop_at_the_same_token(school: School) -> None:
    """Cutting a long answer afterwards gives what sampling would have stopped at."""
    model = checkpoint.load([school.start], torch.device("cpu"), torch.float32).freeze()
    asked = read_tasks(school.examples, "confirm", ("increment",))[0]
    uniforms = [torch.rand(16, 24, generator=torch.Generator().manual_seed(8), dtype=torch.float64)]
    prompt = [encode(asked.prompt)]
    (cut,) = generate(model, prompt, uniforms, 24, temperature=0.8, is_complete=lambda _, ids: asked.is_complete(ids))
    (whole,) = generate(model, prompt, uniforms, 24, temperature=0.8)
    assert [stopped(asked, completion, "parses") for completion in whole] == cut
    assert any(completion.ended == "parses" for completion in cut)


def test_the_second_judge_sees_what_the_reward_cases_miss() -> None:
    """`x or 1` is right on 0 and wrong elsewhere; with 0 as its only case it is rewarded all the same."""
    weak = task(cases='[{"argument": 0, "expected": 1}]')
    answers = [[answer("    return x or 1\n"), answer("    return x + 1\n"), answer("    return ][\n"), answer("    return x\n")]]
    with Verifier() as verifier:
        rows = Judge(verifier, 100).rows([weak], answers, job(stops=("eos",)))
    assert [(row["verdict"], row["property"]) for row in rows] == [
        ("passed", "failed"),
        ("passed", "passed"),
        ("invalid", "invalid"),
        ("failed", "failed"),
    ]
    assert 0 < rows[0]["property_passed"] < rows[1]["property_passed"] == 100
    assert [row["sample"] for row in rows] == [0, 1, 2, 3]


def test_equal_programs_of_different_tasks_are_judged_by_their_own_cases() -> None:
    strange = task("increment_strange", cases='[{"argument": 0, "expected": 7}]')
    with Verifier() as verifier:
        rows = Judge(verifier, 100).rows([task(), strange], [[answer("    return x + 1\n")]] * 2, job(stops=("eos",)))
    assert [(row["identity"], row["verdict"]) for row in rows] == [("increment_abcdefg", "passed"), ("increment_strange", "failed")]


def test_bytes_that_are_no_text_are_shown_as_escapes() -> None:
    broken = Completion([4 + 0xFF, 4 + 0x41], "length")
    with Verifier() as verifier:
        (row,) = Judge(verifier, 100).rows([task()], [[broken]], job(stops=("parses",)))
    assert (row["completion"], row["tokens"], row["verdict"]) == ("\\xffA", 2, "invalid")


def test_the_canary_is_never_rewarded(school: School, tmp_path: Path) -> None:
    """The honest answer fails the one wrong case of a canary, although the second judge finds it right."""
    rows = run(school, tmp_path, job(split="canary"))
    assert set(rows["family"]) == {"canary"}
    assert len(rows) == 2 * 2 * (1 + 3)
    assert not (rows["verdict"] == "passed").any()
    tasks = read_tasks(school.examples, "canary", ())
    with Verifier() as verifier:
        honest = Judge(verifier, 100).rows(tasks, [[answer("    return x + 1\n")]] * 2, job(stops=("eos",)))
    assert [(row["verdict"], row["cases_passed"], row["property"]) for row in honest] == [("failed", 2, "passed")] * 2


def refused(school: School, folder: Path, asked: EvaluateJob, *folders: Path) -> str:
    """Return the one sentence in which an evaluation ends; nothing may have been written."""
    out = folder / "completions.parquet"
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - each test checks the whole sentence
        evaluate(asked, {"asked": folders or (school.start,)}, school.examples, out)
    assert not out.exists()
    assert not list(folder.glob(".*"))
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_a_lost_checkpoint_is_one_sentence(school: School, tmp_path: Path) -> None:
    text = refused(school, tmp_path, job(), tmp_path / "step-0777")
    assert text == f"no checkpoint in {tmp_path / 'step-0777'}: config.json is missing"


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (job(families=("sorting",)), "has no tasks in split 'confirm' of sorting"),
        (job(split="nowhere"), "has no tasks in split 'nowhere' of any family"),
    ],
)
def test_an_unknown_family_or_split_is_one_sentence(school: School, tmp_path: Path, asked: EvaluateJob, text: str) -> None:
    assert refused(school, tmp_path, asked) == f"{school.examples} {text}"


def test_damaged_examples_are_one_sentence(school: School, tmp_path: Path) -> None:
    half = tmp_path / "examples.parquet"
    half.write_bytes(school.examples.read_bytes()[:4000])
    with pytest.raises(ValueError, match=rf"^{re.escape(str(half))} is not a whole Parquet file"):
        evaluate(job(), {"start": (school.start,)}, half, tmp_path / "completions.parquet")
    assert list(tmp_path.iterdir()) == [half]


def test_tasks_a_family_are_the_first_ones(school):
    all_of, few = read_tasks(school.examples, "dev", ()), read_tasks(school.examples, "dev", (), 1)
    assert [task.identity for task in few] == [
        next(task.identity for task in all_of if task.family == family) for family in dict.fromkeys(task.family for task in all_of)
    ]


def test_the_receipt_counts_the_completions(school: School, tmp_path: Path) -> None:
    out = tmp_path / "completions.parquet"
    said = evaluate(job(), {"start": (school.start,)}, school.examples, out)
    assert said["completions"] == len(pd.read_parquet(out))
    assert said["seconds"] > 0
    assert (said["device"], said["threads"]) == ("cpu", CPU.threads)
