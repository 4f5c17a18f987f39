"""Where RL starts, in the report: every arm with a start of its own, and what is said of those that start above the band."""

import json
import re
import shutil

import pandas as pd
import pytest

from glint.report import slides
from glint.report.findings import ABOVE, find
from glint.report.leads import lead
from glint.report.page import render
from glint.report.results import Results
from glint.report.starts import Above, above, selection, sharing
from glint.report.wording import interval, points
from tests.report import synthetic
from tests.report.test_page import Outline

SEEDS = synthetic.SEEDS


@pytest.fixture
def config():
    """Return a plan with an arm `other`, a model of its own, and an arm `clipped`, the base's model with other RL."""
    plan = json.loads(synthetic.config().model_dump_json())
    plan["studies"]["main"]["arms"] |= {"other": {"model": {"linear": "kda"}}, "clipped": {"rl": {"lr": 0.001}}}
    return type(synthetic.config()).model_validate_json(json.dumps(plan))


@pytest.fixture
def tables(analysed, tmp_path):
    """Return tables in which both arms have the base's results, but `other` starts above the band in all seeds but the first."""
    folder = shutil.copytree(analysed / "report", tmp_path / "tables")
    for name in ("estimates", "seeds", "rl", "selection"):
        table = pd.read_csv(folder / f"{name}.csv")
        base = table[(table["study"] == "main") & (table["arm"] == "published")]
        if name == "estimates":
            rival = base[base["phase"] == "gain"].assign(phase="gain_over_base", estimate=-0.4, low=-0.6, high=-0.1)
            base = pd.concat([base, rival])
        pd.concat([table, *(base.assign(arm=arm) for arm in ("other", "clipped"))]).to_csv(folder / f"{name}.csv", index=False)
    change(folder, "selection", lambda row: {"pass_rate": 0.75, "passed": 48, "in_band": False} if row["seed"] > SEEDS[0] else {})
    change(folder, "rl", lambda row: {"updates": 3, "groups": 90})
    return folder


def change(folder, name, values):
    """Set columns in the rows of arm `other`."""
    rows = pd.read_csv(folder / f"{name}.csv").to_dict("records")
    pd.DataFrame([row | (values(row) if row["arm"] == "other" else {}) for row in rows]).to_csv(folder / f"{name}.csv", index=False)


def results(tables, reported):
    return Results(tables, reported / "claims.csv")


def test_arms_of_one_pretraining_share_their_starts(config):
    assert sharing(config, "main") == [("published", "clipped", "shuffled"), ("other",)]


def test_a_start_stands_once_with_all_arms_that_share_it(config, tables, reported):
    rows = selection(config, results(tables, reported), "main").rows
    expected = [(arms, str(seed)) for arms in ("published, clipped, shuffled", "other") for seed in SEEDS]
    assert [row[:2] for row in rows] == expected
    assert [row[3:5] for row in rows[len(SEEDS) :]] == [("27/64", "yes"), *[("48/64", "no")] * (len(SEEDS) - 1)]


def test_starts_above_the_band_are_counted_with_the_updates_of_these_seeds(config, tables, reported):
    high = len(SEEDS) - 1
    assert above(config, results(tables, reported), "main") == {"other": Above("other", 0.75, high, len(SEEDS), 3 * high, 90 * high)}


def test_a_start_below_the_band_is_not_above_it(config, tables, reported):
    change(tables, "selection", lambda row: {"pass_rate": 0.1, "in_band": False})
    assert above(config, results(tables, reported), "main") == {}


def test_the_lead_answers_for_every_arm_and_says_which_cannot_be_compared(config, tables, reported, tmp_path):
    render(config, tables, reported / "claims.csv", reported / "figures", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert Outline(page).open == []
    told = dict(re.findall(r"<li>Arm <code>(\w+)</code> (.*?)</li>", page.partition("</header>")[0]))
    assert set(told) == {"other", "clipped"}
    for text in told.values():
        assert f"{points(-0.4)}, 95\u202f% interval {interval(-0.6, -0.1, signed=True)}" in text
    assert '<a href="#above-other">above the band</a>' in told["other"]
    assert "Kimi delta attention" in told["other"]
    assert "above the band" not in told["clipped"]
    assert "rl.lr: 0.001" in told["clipped"]
    assert "<strong>clipped gains less</strong>" in told["clipped"]
    assert f"<strong>{ABOVE}</strong>" in told["other"]
    high = len(SEEDS) - 1
    (note,) = re.findall(r'<p id="above-other">(.*?)</p>', page)
    assert f"in {high} of {len(SEEDS)} training seeds: with 75.0\u202f% of the dev tasks solved" in note
    assert f"RL made {3 * high} of {90 * high} possible updates there" in note


def test_slides_set_every_arm_against_the_base(config, tables, reported, reveal, tmp_path):
    shutil.copytree(reported / "figures", tables / "figures")
    (tables / "lesson.json").write_text(
        json.dumps(dict.fromkeys(("study", "arm", "seed", "rules", "task", "group", "next_bytes", "routing")))
    )
    slides.render(config, tables, reported / "claims.csv", tables / "figures", reveal, tmp_path / "slides.html")
    (arms,) = re.findall(r'<section id="arms">(.*?)</section>', (tmp_path / "slides.html").read_text(), re.DOTALL)
    verdicts = dict(re.findall(r"<code>(\w+)</code></th>.*?<td class=\"words\">(.*?)</td></tr>", arms))
    assert verdicts == {"other": ABOVE, "clipped": "clipped gains less"}


def test_where_the_base_starts_above_the_band_no_arm_is_better_or_worse(config, tables, reported):
    rows = pd.read_csv(tables / "selection.csv")
    rows.loc[rows["arm"] == "published", "pass_rate"] = 0.75
    rows.to_csv(tables / "selection.csv", index=False)
    assert {one["arm"]: one["verdict"] for one in lead(config, results(tables, reported))} == {"other": ABOVE, "clipped": ABOVE}


@pytest.mark.parametrize(("low", "seeds", "said"), [(-0.1, 3, "undecided"), (float("nan"), 1, "one seed decides nothing")])
def test_what_decides_nothing_is_said(config, tables, reported, low, seeds, said):
    rows = pd.read_csv(tables / "estimates.csv")
    rows.loc[rows["phase"] == "gain_over_base", ["low", "high", "n_seeds"]] = low, -low, seeds
    rows.to_csv(tables / "estimates.csv", index=False)
    assert {one["arm"]: one["verdict"] for one in lead(config, results(tables, reported))} == {"other": ABOVE, "clipped": said}


def test_a_control_that_gains_as_much_is_called_what_it_is(config, tables, reported, tmp_path):
    def text():
        render(config, tables, reported / "claims.csv", reported / "figures", tmp_path / "page.html")
        return (tmp_path / "page.html").read_text()

    said = "The control gained as much or more, so this run shows no effect of the rewards."
    assert said not in text()
    table = pd.read_csv(tables / "estimates.csv")
    table.loc[(table["arm"] == "shuffled") & (table["phase"] == "gain"), ["estimate", "low", "high"]] = 0.95, 0.9, 1.0
    table.to_csv(tables / "estimates.csv", index=False)
    assert said in text()


def test_a_verdict_that_is_passed_on_says_so_too(config, tables, reported):
    plan = json.loads(config.model_dump_json())
    finding = find(type(config).model_validate_json(json.dumps(plan)), results(tables, reported), "main")
    told = {one.label: one.verdict for one in finding.comparisons}
    assert told == {"other": ABOVE, "clipped": "clipped gains less"}
