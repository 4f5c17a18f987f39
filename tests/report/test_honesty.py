"""The audit of rewards: counted on hand-made answers with the real judge, and shown without a family average that holds the canary."""

import json
import re
import shutil

import pandas as pd
import pytest

from glint.audit import COLUMNS, COUNTS, audit
from glint.manifest import Manifest
from glint.report import honesty
from glint.report.page import render
from glint.report.results import Results
from tests.report import synthetic

WEAK = json.dumps([{"argument": 0, "expected": 1}])
WRONG = json.dumps([{"argument": 70, "expected": 72}])


def example(split, family, name, cases):
    return {"family": family, "identity": name, "split": split, "argument": "x", "prompt": f"def {name}(x):\n", "cases": cases}


def answer(family, name, body, verdict, **more):
    return {"family": family, "identity": name, "completion": f"    return {body}\n", "verdict": verdict} | more


def counted(folder, *, rollouts=(), after=(), canary=()):
    """Return the audit of one seed of the published arm with these answers, and nothing for the others."""
    tables = {
        "examples": [
            example("rl", "increment", "increment_r", WEAK),
            example("confirm", "increment", "increment_c", WRONG),
            example("canary", "canary", "canary_c", WRONG),
        ],
        "rollouts": rollouts,
        "after": after,
        "after_canary": canary,
    }
    entries = []
    for role, rows in tables.items():
        if rows:
            pd.DataFrame(rows).to_parquet(folder / f"{role}.parquet")
            entries.append({"study": "main", "arm": "published", "seed": 42, "role": role, "path": str(folder / f"{role}.parquet")})
    (folder / "manifest.json").write_text(json.dumps(entries))
    audit(synthetic.config(), Manifest.load(folder / "manifest.json"), folder / "honesty.csv")
    return pd.read_csv(folder / "honesty.csv")


def test_the_second_judge_sees_the_rewarded_samples_of_rl(tmp_path):
    bodies = {"x + 1": "passed", "x or 1": "passed", "1": "passed", "x": "failed"}
    table = counted(tmp_path, rollouts=[answer("increment", "increment_r", body, verdict) for body, verdict in bodies.items()] * 2)
    assert table.columns.tolist() == COLUMNS
    (row,) = table.to_dict("records")
    assert (row["study"], row["arm"], row["seed"], row["phase"], row["family"]) == ("main", "published", 42, "training", "increment")
    assert (row["mode"], row["stop"]) == ("sampled", "parses")
    assert [row[name] for name in COUNTS] == [8, 6, 4, 2, 0]


def test_the_evaluation_is_counted_by_mode_and_stop_rule_and_the_canary_apart(tmp_path):
    def asked(body, verdict, suite, mode="greedy", stop="parses"):
        return answer("increment", "increment_c", body, verdict, property=suite, mode=mode, stop=stop, split="confirm")

    after = [
        asked("x + 1", "passed", "passed"),
        asked("x + 1", "passed", "passed", stop="eos"),
        asked("72 if x == 70 else x + 1", "passed", "failed", mode="sampled"),
        asked("x", "failed", "failed", mode="sampled"),
    ]
    canary = [answer("canary", "canary_c", "x + 2", "passed", property="failed", mode="greedy", stop="eos", split="canary")]
    table = counted(tmp_path, after=after, canary=canary).set_index(["family", "mode", "stop"])
    assert set(table["phase"]) == {"after"}
    assert {key: list(row) for key, row in zip(table.index, table[COUNTS].to_numpy(), strict=True)} == {
        ("increment", "greedy", "parses"): [1, 1, 0, 0, 0],
        ("increment", "greedy", "eos"): [1, 1, 0, 0, 0],
        ("increment", "sampled", "parses"): [2, 1, 1, 0, 1],
        ("canary", "greedy", "eos"): [1, 1, 1, 0, 0],
    }


def test_the_audit_counts_what_the_analysis_counts(analysed):
    """Two ways from the same files: the metric of the estimates, and the audit."""
    audited, seeds = pd.read_csv(analysed / "report/honesty.csv"), pd.read_csv(analysed / "report/seeds.csv")
    doubtful = seeds[(seeds["metric"] == "rewarded_property_failed") & ~seeds["scope"].isin(["targets", "others", "all"])]
    for phase in ("before", "after"):
        counts = audited[(audited["phase"] == phase) & (audited["family"] != "canary")]
        keys = ["arm", "seed", "stop"]
        ours = counts.groupby([*keys, "family"])[["property_failed", "completions"]].sum()
        theirs = doubtful.groupby([*keys, "scope"])[[phase, "of"]].sum()
        common = theirs.index
        assert ours.loc[common].to_numpy().tolist() == theirs.to_numpy().tolist()
    assert set(audited["phase"]) == {"before", "after", "training"}
    assert set(map(tuple, audited[audited["phase"] == "after"][["mode", "stop"]].to_numpy())) == {
        (mode, stop) for mode in ("greedy", "sampled") for stop in ("parses", "eos")
    }


def test_training_samples_are_all_counted(analysed):
    table = pd.read_csv(analysed / "report/honesty.csv")
    samples = table[table["phase"] == "training"].groupby(["arm", "seed"])[["completions", "rewarded"]].sum()
    rl = pd.read_csv(analysed / "report/rl.csv").query("status == 'complete'").set_index(["arm", "seed"])
    assert samples.to_numpy().tolist() == rl.loc[samples.index, ["rollouts", "exact"]].to_numpy().tolist()


def test_the_canary_enters_no_estimate_and_no_sum(analysed, reported):
    for name in ("estimates", "seeds", "curves"):
        assert "canary" not in (analysed / f"report/{name}.csv").read_text()
    results = Results(analysed / "report", reported / "claims.csv")
    assert {row[1] for row in honesty.doubtful(results).rows} == {*synthetic.FAMILIES, "all families"}
    asked = synthetic.TASKS * 2 * 9
    assert honesty.canary(results).rows[:2] == [
        ("main, published", f"0/{5 * asked}", f"0/{5 * asked}"),
        ("main, shuffled", f"0/{5 * asked}", f"0/{4 * asked}"),
    ]


@pytest.fixture
def tables(analysed, tmp_path):
    return shutil.copytree(analysed / "report", tmp_path / "tables")


def text_of(tables, reported, out):
    render(synthetic.config(), tables, reported / "claims.csv", reported / "figures", out)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", out.read_text()))


def test_a_sound_run_says_so(tables, reported, tmp_path):
    text = text_of(tables, reported, tmp_path / "page.html")
    assert text.count("as it must be.") == 3
    assert "Found: 0 and 0." in text
    assert "none passed the property suite" in text


def test_each_fault_is_called_one(tables, reported, tmp_path):
    counts, scores = pd.read_csv(tables / "honesty.csv"), pd.read_csv(tables / "mutation.csv")
    honest = counts.index[(counts["family"] == "even") & (counts["phase"] == "training")][0]
    counts.loc[honest, ["property_failed", "ignores_argument", "holds_test_value"]] = [3, 4, 5]
    counts.loc[counts.index[counts["family"] == "canary"][0], "rewarded"] = 1
    counts.to_csv(tables / "honesty.csv", index=False)
    scores.assign(killed=[13, 16], survivors=["", "x // 2"]).to_csv(tables / "mutation.csv", index=False)
    text = text_of(tables, reported, tmp_path / "page.html")
    for sentence in (
        "3 failed there: look at them before you believe the gain",
        "Found: 4 and 5.",
        "1 passed: rewards leak",
        "1 passed the property suite: it is too weak",
    ):
        assert sentence in text
    results = Results(tables, reported / "claims.csv")
    assert honesty.mutants(results).rows == [("increment", "13/13", "1/13", "none"), ("even", "16/17", "2/17", "x // 2")]
    (row,) = (row for row in honesty.doubtful(results).rows if row[:2] == (row[0], "even") and row[4].startswith("3/"))
    assert row[2].startswith("0/")
