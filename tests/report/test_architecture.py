"""The tables of the architecture studies, against the synthetic results averaged plainly."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from glint.analysis.architecture import COLUMNS, analyse, verdict
from glint.files import write_parquet
from glint.statistics.intervals import OVER_SEEDS
from tests.report import structures, synthetic
from tests.report.rows import table, the
from tests.report.structures import COUNTS, SEEDS, config, write


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with the results, and their tables in `report`, of a study in which one seed of one arm is missing."""
    root = tmp_path_factory.mktemp("structure")
    analyse(config(), write(root / "results", missing=(("single", 45),)), root / "report")
    return root


def losses(run, arm, step, source="all", seeds=SEEDS):
    """Return the seeds' losses straight from the files."""
    frames = [pd.read_parquet(run / f"results/{arm}/seed-{seed}/loss.parquet") for seed in seeds]
    return np.array([frame[(frame["step"] == step) & (frame["source"] == source)]["loss"].item() for frame in frames])


@pytest.mark.parametrize(("contrast", "against_step", "source"), [("together", 200, "even"), ("together_flops", 76, "all")])
def test_a_comparison_is_the_paired_difference_with_scipys_interval_and_test(run, contrast, against_step, source):
    row = the(table(run, "architecture_contrasts", contrast=contrast, source=source, outcome="loss"))
    ours, theirs = losses(run, "hybrid", 200, source), losses(run, "dense", against_step, source)
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    p = stats.permutation_test((ours - theirs,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    values = (ours.mean(), theirs.mean(), (ours - theirs).mean(), interval.low, interval.high, p)
    assert row[["arm_mean", "against_mean", "estimate", "low", "high", "p"]].tolist() == pytest.approx(values, rel=1e-4)
    assert (row["n_seeds"], row["p_floor"], row["seeds_won"], row["method"]) == (4, 2 / 2**4, (ours < theirs).sum(), OVER_SEEDS)
    assert (row["step"], row["against_step"]) == (200, against_step)
    assert tuple(row[["arm_parameters", "arm_active", "against_parameters", "against_active"]]) == (*COUNTS["hybrid"], *COUNTS["dense"])
    spent = {arm: 6 * COUNTS[arm][1] * np.mean([1600 + seed for seed in SEEDS]) for arm in COUNTS}
    flops = [spent["hybrid"] * 200, spent["dense"] * against_step]
    assert row[["arm_flops", "against_flops"]].tolist() == pytest.approx(flops, rel=1e-5)


def test_less_loss_pays_and_the_verdict_depends_on_the_budget(run):
    """The dense model loses less at equal steps, and more after the steps that cost as much as the hybrid's."""
    rows = table(run, "architecture_contrasts", source="all", outcome="loss")
    assert rows["contrast"].tolist() == ["streams", "streams", "together", "together_flops"]
    assert rows["verdict"].tolist() == ["pays", "pays", "costs", "pays"]


@pytest.mark.parametrize(
    ("outcome", "low", "high", "said"),
    [
        ("loss", -2, -1, "pays"),
        ("loss", 1, 2, "costs"),
        ("loss", -1, 1, "undecided"),
        ("dev", 1, 2, "pays"),
        ("dev", -2, -1, "costs"),
        ("dev", 0, 1, "undecided"),
        ("dev", 2, 2, "undecided"),
        ("dev", np.nan, np.nan, "undecided"),
    ],
)
def test_the_verdict_is_the_side_of_0_on_which_the_interval_lies(outcome, low, high, said):
    assert verdict(outcome, low, high) == said


def test_holm_corrects_what_is_planned_of_all_sources_outcome_by_outcome(run):
    rows = table(run, "architecture_contrasts")
    for outcome in ("loss", "dev"):
        planned = rows[(rows["outcome"] == outcome) & (rows["source"] == "all")]
        ordered = planned["p"].sort_values()
        by_hand = (ordered * np.arange(4, 0, -1)).cummax().clip(upper=1)
        assert planned["p_holm"].loc[by_hand.index].tolist() == pytest.approx(by_hand.tolist(), rel=1e-5)
    assert rows.loc[rows["source"] != "all", "p_holm"].isna().all()


def test_dev_tasks_solved_are_compared_in_points(run):
    row = the(table(run, "architecture_contrasts", contrast="together", outcome="dev"))
    solved = []
    for seed in SEEDS:
        rows = pd.read_parquet(run / f"results/hybrid/seed-{seed}/dev.parquet")
        asked = rows[(rows["stop"] == "parses") & (rows["mode"] == "greedy") & (rows["checkpoint"] == "step-0200")]
        solved.append(100 * (asked["verdict"] == "passed").mean())
    assert row["arm_mean"] == pytest.approx(np.mean(solved), rel=1e-5)
    assert row["estimate"] == pytest.approx(row["arm_mean"] - row["against_mean"], rel=1e-4)
    final = the(table(run, "architecture_arms", arm="hybrid"))
    assert final["final_dev"] == pytest.approx(np.mean(solved), rel=1e-5)


def test_a_missing_seed_is_a_row_and_leaves_the_comparisons_of_its_arm(run):
    assert table(run, "architecture", arm="single", status="missing")["seed"].tolist() == [45]
    row = the(table(run, "architecture_contrasts", contrast="streams", step=200, source="all", outcome="loss"))
    ours, theirs = (losses(run, arm, 200, seeds=SEEDS[:3]) for arm in ("hybrid", "single"))
    assert row["n_seeds"] == 3
    assert row["estimate"] == pytest.approx((ours - theirs).mean(), rel=1e-4)


def test_a_seed_has_a_row_a_checkpoint_and_source(run):
    rows = table(run, "architecture", arm="dense", seed=43)
    assert len(rows) == 3 * 9
    row = the(rows[(rows["step"] == 76) & (rows["source"] == "all")])
    assert row["flops"] == pytest.approx(6 * 25716224 * 1643 * 76, rel=1e-5)
    assert 0 <= row["dev"] <= 100
    assert rows[rows["source"] != "all"]["dev"].isna().all()


def test_an_arm_says_what_it_changes_and_how_large_it_is(run):
    rows = table(run, "architecture_arms").set_index("arm")
    assert rows.index.tolist() == ["hybrid", "dense", "single"]
    assert rows["seeds"].tolist() == [4, 4, 3]
    assert rows.loc["single", "changed"] == "model.residual"
    assert rows.loc["dense", "changed"].split(";")[:2] == ["model.linear", "model.sparse"]
    assert rows["within_1_percent"].all()
    speeds = [(1600 + seed) * 200 / (100 + seed) for seed in SEEDS]
    assert rows.loc["dense", "train_tokens_per_second"] == pytest.approx(np.median(speeds), rel=1e-5)
    assert rows.loc["dense", "final_loss"] == pytest.approx(losses(run, "dense", 200).mean(), rel=1e-5)


def test_costs_are_copied_an_arm_at_a_time(run):
    rows = table(run, "costs", arm="dense")
    assert rows["context"].tolist() == [128, 1024]
    assert rows["cache_bytes"].tolist() == [128 * 9216, 1024 * 9216]
    assert table(run, "costs_speed")["what"].tolist() == ["pretrain_step", "decode"] * 3


def test_losses_of_other_examples_are_not_compared(tmp_path):
    manifest = write(tmp_path / "results")
    path = tmp_path / "results/dense/seed-43/loss.parquet"
    write_parquet(path, pd.read_parquet(path).assign(tokens=structures.TOKENS - 1))
    with pytest.raises(ValueError, match="study structure, arm dense: its losses are of other examples"):
        analyse(config(), manifest, tmp_path / "report")


def test_an_arm_without_a_seed_or_without_costs_is_refused(tmp_path):
    every = tuple(("dense", seed) for seed in SEEDS)
    with pytest.raises(ValueError, match="study structure, arm dense: no seed has results"):
        analyse(config(), write(tmp_path / "none", missing=every), tmp_path / "report")
    manifest = write(tmp_path / "results")
    without = type(manifest)([entry for entry in manifest.entries if entry.role != "costs"])
    with pytest.raises(ValueError, match="study structure, arm hybrid: what its model costs has not been measured"):
        analyse(config(), without, tmp_path / "report")


def test_without_such_a_study_the_tables_are_headers(tmp_path):
    analyse(synthetic.config(), write(tmp_path / "results"), tmp_path / "report")
    for name, columns in COLUMNS.items():
        assert (tmp_path / "report" / f"{name}.csv").read_text() == ",".join(columns) + "\n"
