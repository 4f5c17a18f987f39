"""The rl studies beside the front one, in the report: which stop rule and which numbers they show."""

import json
import re
import shutil

import pandas as pd
import pytest

from glint.report import tables as views
from glint.report.page import render
from glint.report.results import Results
from glint.report.rivals import Solved, against_base, arms
from tests.report import synthetic


@pytest.fixture
def tables(analysed, tmp_path):
    return shutil.copytree(analysed / "report", tmp_path / "tables")


def test_a_cell_holds_the_tasks_solved_those_of_one_arm_alone_and_the_corrected_p(analysed, reported):
    results = Results(analysed / "report", reported / "claims.csv")
    solved = Solved.of_study(results, "screen")
    rows = {row[0]: row for row in against_base(results, solved).rows}
    compared = results.read("comparisons").query("study == 'screen' and stop == 'parses' and arm == 'group_4' and seed == 2").iloc[0]
    assert rows["group_4"][2] == (f"{compared['solved']} (+{compared['gains']} \u2212{compared['losses']}), p {compared['p_holm']:.2g}")
    assert rows["standard"][2] == str(compared["against_solved"])
    assert solved.of == compared["of"]


def test_a_study_is_shown_under_its_own_first_stop_rule(tables, reported):
    for name in ("estimates", "seeds", "comparisons"):
        frame = pd.read_csv(tables / f"{name}.csv")
        frame[(frame["study"] != "screen") | (frame["stop"] != "parses")].to_csv(tables / f"{name}.csv", index=False)
    results = Results(tables, reported / "claims.csv")
    solved = Solved.of_study(results, "screen")
    after = results.read("seeds").query("study == 'screen' and arm == 'group_4' and scope == 'targets' and metric == 'greedy_pass1'")
    assert solved.counts["group_4"].tolist() == after["after"].tolist()
    assert len(solved.rows) == 7 * 3
    assert len(views.arms(results, synthetic.config(), "screen").rows) == 8
    assert "screen: standard" in arms(results)


def rendered(tables, reported, change):
    plan = json.loads(synthetic.config().model_dump_json())
    change(plan)
    config = type(synthetic.config()).model_validate_json(json.dumps(plan))
    render(config, tables, reported / "claims.csv", reported / "figures", tables / "page.html")
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", (tables / "page.html").read_text()))


def test_the_number_of_completions_is_that_of_the_arms(tables, reported):
    def change(plan):
        plan["recipes"]["screen"]["rl"]["group_size"] = 16
        for study in ("screen", "screen_confirm"):
            arms = plan["studies"][study]["arms"]
            arms["a_standard"] = arms.pop("standard")  # no arm is the recipe now, so the first by name is the base
            for arm in arms.values():
                arm["rl"].setdefault("group_size", 8)
                arm["several_changes"] = "the rollouts stay"

    for path in tables.glob("*.csv"):
        path.write_text(path.read_text().replace("standard", "a_standard"))
    text = rendered(tables, reported, change)
    assert text.count("Every arm draws 128 completions in training") == 2


def test_a_front_study_whose_seeds_share_a_start_says_so(tables, reported):
    def change(plan):
        plan["studies"]["main"] |= {"start_seed": 42, "tasks_per_family": 3}

    text = rendered(tables, reported, change)
    assert "A seed is its own RL; all start from one checkpoint, that of the pretraining of seed 42" in text
    assert "A seed is its own pretraining and its own RL." not in text
    assert "for 3 tasks a family that no training saw" in text
    assert "for 8 tasks a family that no training saw" in rendered(tables, reported, lambda plan: None)
