"""The tables, figures and section of the pretraining studies, against the synthetic scores averaged plainly."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from glint.analysis.baselines import baseline_rows
from glint.analysis.expressions import COLUMNS, analyse
from glint.manifest import Manifest
from glint.report.contrasts import Trajectories, planned
from glint.report.results import Results
from glint.statistics.intervals import OVER_SEEDS, STRUCTURES_TOO
from tests.report import synthetic
from tests.report.rows import table, the

SEEDS = synthetic.STRUCTURE_SEEDS


def accuracies(root, arm, step, blocks):
    """Return each seed's share of bytes, the mean over structures, straight from the files."""
    found = []
    for seed in SEEDS:
        scores = pd.read_parquet(root / f"results/expressions/{arm}/seed-{seed}/scores.parquet")
        rows = scores[(scores["step"] == step) & scores["block"].isin(blocks)]
        found.append((rows["right"] / rows["bytes"]).mean())
    return np.array(found)


@pytest.mark.parametrize(
    ("contrast", "arm", "against", "step"), [("order", "diverse", "blocked", 200), ("diversity", "diverse", "repeated", 50)]
)
def test_a_contrast_is_the_paired_difference_with_scipys_interval_and_test(analysed, contrast, arm, against, step):
    keys = {"contrast": contrast, "step": step, "split": "held_out", "metric": "byte_accuracy"}
    row = the(table(analysed, "contrasts", **keys, method=OVER_SEEDS))
    ours, theirs = (accuracies(analysed, one, step, range(88, 120)) for one in (arm, against))
    difference = ours - theirs
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    p = stats.permutation_test((difference,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    values = (ours.mean(), theirs.mean(), difference.mean(), interval.low, interval.high, p)
    assert row[["arm_mean", "against_mean", "estimate", "low", "high", "p"]].tolist() == pytest.approx(values, rel=1e-4, abs=1e-6)
    assert (row["arm"], row["against"], row["n_seeds"], row["n_structures"]) == (arm, against, 10, 32)
    assert (row["p_floor"], row["seeds_won"]) == (pytest.approx(2 / 2**10, rel=1e-5), (difference > 0).sum())


def test_drawing_structures_too_keeps_the_estimate_and_widens_the_interval(analysed):
    keys = {"contrast": "order", "split": "held_out", "metric": "byte_accuracy"}
    narrow, wide = (the(table(analysed, "contrasts", **keys, method=method)) for method in (OVER_SEEDS, STRUCTURES_TOO))
    assert narrow["estimate"] == wide["estimate"]
    assert wide["low"] < wide["estimate"] < wide["high"]


def test_every_planned_comparison_is_there_once_for_every_outcome(analysed):
    rows = table(analysed, "contrasts", method=OVER_SEEDS)
    assert rows.groupby(["contrast", "step"], sort=False).size().to_dict() == {
        ("diversity", 50): 6,
        ("diversity", 100): 6,
        ("diversity", 200): 6,
        ("order", 200): 6,
        ("curriculum", 200): 6,
    }


def test_a_seed_has_a_row_a_checkpoint_and_outcome(analysed):
    rows = table(analysed, "expressions", arm="blocked", seed=44)
    assert len(rows) == 2 * (2 * len(synthetic.CHECKPOINTS) + 3)
    row = the(table(analysed, "expressions", arm="blocked", seed=44, step=100, split="held_out", metric="byte_accuracy"))
    assert row["value"] == pytest.approx(accuracies(analysed, "blocked", 100, range(88, 120))[SEEDS.index(44)], rel=1e-5)
    assert set(table(analysed, "expressions", metric="executed")["value"]) == {0}


def test_an_exact_expression_has_every_byte(analysed):
    scores = pd.read_parquet(analysed / "results/expressions/blocked/seed-42/scores.parquet")
    rows = scores[(scores["step"] == 200) & (scores["split"] == "trained")]
    row = the(table(analysed, "expressions", arm="blocked", seed=42, step=200, split="trained", metric="exact_expression"))
    assert row["value"] == pytest.approx((rows["right"] == 10).mean(), rel=1e-5)
    assert row["value"] > 0


def test_forgetting_is_measured_from_the_checkpoint_after_the_blocks(analysed):
    rows = table(analysed, "forgetting")
    assert set(rows["arm"]) == {"blocked"}
    first = rows.iloc[0]
    assert (first["first"], first["last"], first["step"], first["last_step"]) == (0, 7, 20, 200)
    change = accuracies(analysed, "blocked", 200, range(8)) - accuracies(analysed, "blocked", 20, range(8))
    assert first["estimate"] == pytest.approx(change.mean(), rel=1e-4)
    assert first["high"] < -0.2
    assert rows["step"].tolist() == [20, 40, 100, 100, 100]  # blocks 33 on end between 91 and 200: at the checkpoint of 100 or at the last


def test_trajectories_average_eight_neighbours_and_the_held_out(analysed):
    rows = table(analysed, "trajectories", arm="curriculum", step=100)
    assert rows["split"].tolist() == ["held_out"] + ["trained"] * 11
    second = rows[rows["first"] == 8].iloc[0]
    assert second["estimate"] == pytest.approx(accuracies(analysed, "curriculum", 100, range(8, 16)).mean(), rel=1e-5)


def test_the_written_expressions_shown_follow_the_rule(analysed):
    rows = table(analysed, "written", arm="repeated")
    assert rows["family"].tolist() == [f"structure-{block}" for block in range(88, 93)]
    assert (set(rows["seed"]), set(rows["step"])) == ({42}, {200})


def test_baselines_by_hand():
    """Two structures known, one held out; the commonest byte is `b`, and after `a` comes `b`."""
    rows = [("trained", 0, "abab"), ("trained", 1, "bb"), ("held_out", 2, "aab"), ("held_out", 3, "xb")]
    found = {(row["split"], row["name"]): row["value"] for row in baseline_rows(pd.DataFrame(rows, columns=["split", "block", "target"]))}
    assert found == {
        ("trained", "commonest_byte"): pytest.approx((2 / 4 + 2 / 2) / 2),
        ("held_out", "commonest_byte"): pytest.approx((1 / 3 + 1 / 2) / 2),
        # at the start `a` or `b`, once each: the one met first; after `a` always `b`; after `b` once `a`, once `b`: the one met first
        ("trained", "after_the_byte_before"): pytest.approx((4 / 4 + 0 / 2) / 2),
        ("held_out", "after_the_byte_before"): pytest.approx((2 / 3 + 0 / 2) / 2),
    }


def test_a_missing_seed_is_a_row_and_leaves_its_pairs(analysed, tmp_path):
    again = synthetic.analysed_again(analyse, analysed, tmp_path, synthetic.drop("expressions", "blocked", 42, 45))
    assert table(again, "expressions", arm="blocked", status="missing")["seed"].tolist() == [42, 45]
    assert set(table(again, "contrasts", contrast="order")["n_seeds"]) == {8}
    assert set(table(again, "contrasts", contrast="diversity")["n_seeds"]) == {10}
    assert set(table(again, "written", arm="blocked")["seed"]) == {43}


def test_an_arm_without_seeds_or_without_a_pair_is_an_error(analysed, tmp_path):
    with pytest.raises(ValueError, match="study expressions, arm blocked: no seed has results"):
        synthetic.analysed_again(analyse, analysed, tmp_path, synthetic.drop("expressions", "blocked", *SEEDS))

    def split(entries):
        synthetic.drop("expressions", "diverse", *SEEDS[:5])(entries)
        synthetic.drop("expressions", "blocked", *SEEDS[5:])(entries)

    with pytest.raises(ValueError, match="arms diverse and blocked have no complete seed in common"):
        synthetic.analysed_again(analyse, analysed, tmp_path, split)
    assert not (tmp_path / "report").exists()


def test_scores_of_other_examples_are_refused(analysed, tmp_path):
    path = shutil.copy(analysed / "results/expressions/blocked/seed-42/scores.parquet", tmp_path / "scores.parquet")
    pd.read_parquet(path).replace({"identity": {"f_3": "f_zzz"}}).to_parquet(path)

    def swap(entries):
        for entry in entries:
            if (entry["arm"], entry["seed"], entry["role"]) == ("blocked", 42, "expression_scores"):
                entry["path"] = str(path)

    with pytest.raises(ValueError, match=r"scores.parquet holds scores of other examples than .*: they cannot be compared"):
        synthetic.analysed_again(analyse, analysed, tmp_path, swap)


def test_without_a_pretraining_study_the_tables_are_headers(tmp_path):
    config = synthetic.config()
    main = config.model_copy(update={"studies": {"main": config.studies["main"]}})
    analyse(main, Manifest([]), tmp_path)
    for name, columns in COLUMNS.items():
        assert (tmp_path / f"{name}.csv").read_text() == ",".join(columns) + "\n"


def test_the_page_shows_every_comparison_and_what_was_written(analysed, reported):
    page = (reported / "report.html").read_text()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))
    results = Results(analysed / "report", reported / "claims.csv")
    assert len(planned(results)) == 15
    assert page.count("diverse less repeated, step 50") == 6
    assert "diverse less blocked, step 200" in text
    assert "abs(n + 3) * 3" in text
    assert "Does training by blocks forget?" in text


def test_the_figures_say_what_they_show(analysed, reported):
    results = Results(analysed / "report", reported / "claims.csv")
    found = Trajectories.of(results)
    assert found is not None
    assert found.arms == ["blocked", "diverse"]
    assert len(found.lines("blocked")) == 11
    assert results.published_differences()["order.200"] == pytest.approx(0.097)
    text = (reported / "figures/forgetting.svg").read_text()
    assert found.summary in text
    assert "order at step 200" in (reported / "figures/contrasts.svg").read_text()
