"""The tables of a synthetic run, against its own completions counted plainly."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from glint.analysis import OUTPUTS, analyse, architecture, expressions, recall, vision
from glint.statistics.intervals import FAMILIES_TOO, TASKS_WITHIN_FAMILIES
from glint.statistics.significance import holm, mcnemar
from tests.report import synthetic


def table(root, name):
    return pd.read_csv(root / "report" / f"{name}.csv")


def pick(frame, **values):
    for column, value in values.items():
        frame = frame[frame[column] == value]
    return frame


def confirm(root, seed, arm=None, **values):
    folder = root / "results" / f"seed-{seed}"
    completions = pd.read_parquet(folder / arm / "after.parquet" if arm else folder / "before.parquet")
    return pick(completions, **values)


def estimate(root, **values):
    defaults = {"arm": "published", "stop": "parses", "scope": "targets", "method": TASKS_WITHIN_FAMILIES}
    rows = pick(table(root, "estimates"), **(defaults | values))
    assert len(rows) == 1
    return rows.iloc[0]


def targets_pass_rate(root, arm, seed, **values):
    rows = confirm(root, seed, arm, stop="parses", **values)
    return (rows[rows["family"].isin(synthetic.TARGETS)]["verdict"] == "passed").mean()


def test_every_output_is_written(analysed):
    assert {path.name for path in (analysed / "report").iterdir()} == {
        *OUTPUTS,
        *(f"{name}.csv" for name in (*expressions.COLUMNS, *vision.COLUMNS, *recall.COLUMNS, *architecture.COLUMNS)),
        "vision_images.json",
        "honesty.csv",
        "mutation.csv",
    }


@pytest.mark.parametrize(("metric", "mode"), [("greedy_pass1", "greedy"), ("sampled_exact", "sampled")])
def test_estimates_are_plain_means_over_completions(analysed, metric, mode):
    before = np.array([targets_pass_rate(analysed, None, seed, mode=mode) for seed in synthetic.SEEDS])
    after = np.array([targets_pass_rate(analysed, "published", seed, mode=mode) for seed in synthetic.SEEDS])
    assert estimate(analysed, metric=metric, phase="before")["estimate"] == pytest.approx(before.mean(), rel=1e-5)
    assert estimate(analysed, metric=metric, phase="after")["estimate"] == pytest.approx(after.mean(), rel=1e-5)
    gain = estimate(analysed, metric=metric, phase="gain")
    assert gain["estimate"] == pytest.approx((after - before).mean(), rel=1e-5)
    assert gain["low"] < gain["estimate"] < gain["high"]
    assert (gain["p"], gain["p_floor"]) == (0.0625, 0.0625)


def test_units_and_counts_of_completions_are_stated(analysed):
    row = estimate(analysed, metric="sampled_exact", phase="gain")
    assert (row["n_seeds"], row["n_tasks"], row["n_completions"]) == (5, 24, 5 * 24 * 8 * 2)


def test_gain_over_the_control_pairs_the_seeds_that_both_have(analysed):
    def gain(arm, seed):
        return targets_pass_rate(analysed, arm, seed, mode="greedy") - targets_pass_rate(analysed, None, seed, mode="greedy")

    row = estimate(analysed, metric="greedy_pass1", phase="gain_over_control")
    expected = np.mean([gain("published", seed) - gain("shuffled", seed) for seed in (42, 43, 44, 45)])
    assert row["estimate"] == pytest.approx(expected, rel=1e-5)
    assert (row["n_seeds"], row["p_floor"]) == (4, 0.125)


def test_an_arm_is_set_against_the_base_which_stands_in_front(tmp_path):
    plan = json.loads(synthetic.config(resamples=10).model_dump_json())
    plan["studies"]["main"]["arms"]["another"] = {"rl": {"lr": 1e-5}}
    manifest = synthetic.write(tmp_path, missing=[])
    listed = json.loads(manifest.read_text())
    listed += [entry | {"arm": "another"} for entry in listed if entry["arm"] == "published"]
    manifest.write_text(json.dumps(listed))
    analyse(type(synthetic.config()).model_validate_json(json.dumps(plan)), manifest, tmp_path / "out")
    estimates = pd.read_csv(tmp_path / "out/estimates.csv")
    rl = estimates[estimates["study"] == "main"]
    assert rl["arm"].unique().tolist() == ["published", "another", "shuffled"]
    over = rl[rl["phase"] == "gain_over_base"]
    assert over["arm"].unique().tolist() == ["another"]
    assert (over[["estimate", "low", "high"]] == 0).all(axis=None)


def test_the_gain_shows_and_the_control_has_none(analysed):
    assert estimate(analysed, metric="greedy_pass1", phase="gain")["low"] > 0.2
    control = estimate(analysed, arm="shuffled", metric="greedy_pass1", phase="gain")
    assert control["low"] < 0 < control["high"]


def test_drawing_families_too_is_reported_beside(analysed):
    narrow = estimate(analysed, metric="greedy_pass1", phase="after")
    wide = estimate(analysed, metric="greedy_pass1", phase="after", method=FAMILIES_TOO)
    assert wide["high"] - wide["low"] > narrow["high"] - narrow["low"]


def test_scopes_are_the_sums_then_the_families_in_order(analysed):
    assert table(analysed, "estimates")["scope"].unique().tolist() == ["targets", "others", "all", *synthetic.FAMILIES]


def test_seed_rows_count_tasks_and_flips(analysed):
    row = pick(table(analysed, "seeds"), arm="published", seed=43, stop="eos", scope="even", metric="greedy_pass1").iloc[0]
    before, after = (
        confirm(analysed, 43, arm, stop="eos", family="even", mode="greedy").set_index("identity")["verdict"] == "passed"
        for arm in (None, "published")
    )
    assert (row["before"], row["after"], row["of"]) == (before.sum(), after.sum(), 8)
    assert (row["gains"], row["losses"]) == ((after & ~before).sum(), (before & ~after).sum())


def test_a_missing_seed_is_a_row(analysed):
    for name in ("seeds", "rl"):
        rows = pick(table(analysed, name), arm="shuffled", status="missing")
        assert rows["seed"].tolist() == [46]


def test_rl_counts_the_rollouts(analysed):
    row = pick(table(analysed, "rl"), arm="published", seed=44).iloc[0]
    rollouts = pd.read_parquet(analysed / "results/seed-44/published/rollouts.parquet")
    equal = sum(len(set(rewards)) == 1 for _, rewards in rollouts.groupby("group")["reward"])
    assert (row["groups"], row["rollouts"]) == (96, 1536)
    assert row["exact"] == (rollouts["verdict"] == "passed").sum()
    assert row["invalid"] == (rollouts["verdict"] == "invalid").sum()
    assert (row["zero_spread_groups"], row["updates"]) == (equal, 96 - equal)


def test_curves_hold_each_shared_file_once(analysed):
    curves = table(analysed, "curves")
    loss = pick(curves, curve="pretrain_loss", seed=43)
    assert loss["x"].tolist() == list(range(1, 161))
    dev = pick(curves, curve="rl_dev_exact", arm="published", seed=43)
    assert dev["x"].tolist() == [0, 24, 48, 72, 96]
    assert dev["of"].unique().tolist() == [24 * 8]
    assert pick(curves, curve="pretrain_dev_pass1", seed=42)["x"].tolist() == [0, 60, 80, 100, 120, 140, 160, 200, 400]


def test_the_example_is_the_first_task_that_turned(analysed):
    example = json.loads((analysed / "report/example.json").read_text())
    before, after = (confirm(analysed, 42, arm, stop="parses", mode="greedy").set_index("identity") for arm in (None, "published"))
    trained = before["family"].isin(synthetic.TARGETS)
    turned = before[trained & (before["verdict"] != "passed") & (after["verdict"] == "passed")]
    assert example["identity"] == turned.index[0]
    assert example["prompt"].endswith(f"def {example['identity']}(x):\n")
    assert (example["verdict_before"] != "passed", example["verdict_after"]) == (True, "passed")


def test_the_same_files_give_the_same_bytes(analysed, tmp_path):
    analyse(synthetic.config(), analysed / "results/manifest.json", tmp_path)
    for name in OUTPUTS:
        assert (tmp_path / name).read_bytes() == (analysed / "report" / name).read_bytes()


def test_seeds_that_met_other_tasks_are_refused(analysed, tmp_path):
    root = shutil.copytree(analysed / "results", tmp_path / "results")
    entries = json.loads((root / "manifest.json").read_text().replace(str(analysed / "results"), str(root)))
    (root / "manifest.json").write_text(json.dumps(entries))
    path = root / "seed-43" / "before.parquet"
    pd.read_parquet(path).replace({"identity": {synthetic.identity("even", 0): "even_zzzzzzz"}}).to_parquet(path)
    with pytest.raises(ValueError, match=r"seed-43/before.parquet holds other tasks .* not crossed"):
        analyse(synthetic.config(resamples=10), root / "manifest.json", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_arm_without_any_seed_is_an_error(tmp_path):
    manifest = synthetic.write(tmp_path, missing=[("shuffled", seed) for seed in synthetic.SEEDS])
    with pytest.raises(ValueError, match="study main, arm shuffled: no seed has results"):
        analyse(synthetic.config(resamples=10), manifest, tmp_path / "out")


def test_an_arm_and_a_control_without_a_common_seed_cannot_be_compared(tmp_path):
    missing = [("published", seed) for seed in (42, 43)] + [("shuffled", seed) for seed in (44, 45, 46)]
    manifest = synthetic.write(tmp_path, missing=missing)
    with pytest.raises(ValueError, match="arms published and shuffled have no complete seed in common"):
        analyse(synthetic.config(resamples=10), manifest, tmp_path / "out")


def test_targets_are_the_families_of_the_plan(analysed, tmp_path):
    plan = json.loads(synthetic.config(resamples=10).model_dump_json())
    plan["studies"]["main"]["analysis"]["families"] = ["square"]
    analyse(type(synthetic.config()).model_validate_json(json.dumps(plan)), analysed / "results/manifest.json", tmp_path)
    estimates = pd.read_csv(tmp_path / "estimates.csv").set_index(["scope", "arm", "stop", "metric", "phase", "method"])["estimate"]
    key = ("published", "parses", "greedy_pass1", "after", TASKS_WITHIN_FAMILIES)
    assert estimates["targets", *key] == estimates["square", *key]


def screen_solves(analysed, arm, seed):
    """Return the names of the tasks of the trained families that the greedy answers of one screen run solve."""
    rows = pd.read_parquet(analysed / f"results/screen/{arm}/seed-{seed}/after.parquet")
    rows = rows[(rows["mode"] == "greedy") & (rows["stop"] == "parses") & rows["family"].isin(synthetic.SCREENED)]
    return set(rows.loc[rows["verdict"] == "passed", "identity"])


def test_arms_are_compared_task_by_task_with_the_base_and_corrected_together(analysed):
    rows = table(analysed, "comparisons").query("study == 'screen' and stop == 'parses' and seed == 2").set_index("arm")
    assert len(rows) == 7
    assert set(rows["against"]) == {"standard"}
    assert set(rows["of"]) == {20}
    ours, base = (screen_solves(analysed, arm, 2) for arm in ("group_4", "standard"))
    row = rows.loc["group_4"]
    assert (row["solved"], row["against_solved"], row["gains"], row["losses"]) == (len(ours), len(base), len(ours - base), len(base - ours))
    either = sorted(ours | base)
    assert row["p"] == pytest.approx(mcnemar([name in base for name in either], [name in ours for name in either]).p)
    assert rows["p_holm"].to_numpy() == pytest.approx(holm(rows["p"]), abs=1e-5)
    assert set(rows["needed"]) == {9}


def test_a_control_is_compared_with_nothing(analysed):
    assert set(table(analysed, "comparisons")["study"]) == {"screen", "screen_confirm"}


def test_a_seed_that_an_arm_lacks_is_compared_in_the_other_arms(tmp_path):
    manifest = synthetic.write(tmp_path, missing=[("group_4", 2), ("standard", 3)])
    analyse(synthetic.config(resamples=10), manifest, tmp_path / "out")
    rows = pd.read_csv(tmp_path / "out/comparisons.csv").query("study == 'screen'").drop_duplicates(["arm", "seed"])
    assert rows.groupby("seed").size().to_dict() == {1: 7, 2: 6}
    assert set(rows["needed"]) == {9}
    two = rows[rows["seed"] == 2]
    assert two["p_holm"].to_numpy() == pytest.approx(holm([*two["p"], 1.0])[:6], abs=1e-5)


def test_main_stands_before_studies_whose_names_come_first(analysed, tmp_path):
    def renamed(text):
        return json.loads(text.replace('"screen"', '"aside"'))

    plan, entries = renamed(synthetic.config(resamples=10).model_dump_json()), renamed((analysed / "results/manifest.json").read_text())
    plan["studies"] = {name: plan["studies"][name] for name in ("aside", "main")}
    plan["studies"]["aside"]["recipe"], plan["recipes"]["screen"] = "screen", plan["recipes"].pop("aside")
    (tmp_path / "manifest.json").write_text(json.dumps([entry for entry in entries if entry["study"] in plan["studies"]]))
    analyse(type(synthetic.config()).model_validate_json(json.dumps(plan)), tmp_path / "manifest.json", tmp_path / "out")
    for name in ("estimates", "seeds", "rl"):
        assert pd.read_csv(tmp_path / f"out/{name}.csv")["study"].unique().tolist() == ["main", "aside"]
    assert json.loads((tmp_path / "out/example.json").read_text())["study"] == "main"


def test_a_run_with_another_budget_than_its_recipe_is_refused(analysed, tmp_path):
    shutil.copytree(analysed / "results", tmp_path / "results")
    manifest = tmp_path / "results/manifest.json"
    manifest.write_text(manifest.read_text().replace(str(analysed / "results"), str(tmp_path / "results")))
    path = tmp_path / "results/screen/group_4/seed-1/rollouts.parquet"
    pd.read_parquet(path).head(100).to_parquet(path)
    with pytest.raises(ValueError, match=r"rollouts.parquet holds 100 rollouts, but the recipe of screen/group_4 draws 128"):
        analyse(synthetic.config(resamples=10), manifest, tmp_path / "out")


def test_study_main_stands_in_front_whatever_the_others_are_called():
    config = synthetic.config()
    renamed = config.model_copy(update={"studies": {"a_screen": config.studies["screen"], "main": config.studies["main"]}})
    assert renamed.rl_studies() == ("main", "a_screen")
