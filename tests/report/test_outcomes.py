"""Scores of hand-made completions."""

import pandas as pd
import pytest

from glint.analysis.outcomes import score, score_file

COLUMNS = ["family", "identity", "mode", "verdict", "cases_passed", "cases_total", "property"]


def table(*rows):
    return pd.DataFrame(rows, columns=COLUMNS)


TWO_TASKS = table(
    ("even", "even_a", "greedy", "passed", 3, 3, "passed"),
    ("even", "even_a", "sampled", "passed", 3, 3, "failed"),
    ("even", "even_a", "sampled", "failed", 1, 3, "failed"),
    ("even", "even_a", "sampled", "invalid", 0, 3, "invalid"),
    ("even", "even_a", "sampled", "invalid", 0, 3, "invalid"),
    ("even", "even_b", "greedy", "failed", 2, 3, "failed"),
    ("even", "even_b", "sampled", "passed", 3, 3, "passed"),
    ("even", "even_b", "sampled", "passed", 3, 3, "passed"),
    ("even", "even_b", "sampled", "passed", 3, 3, "passed"),
    ("even", "even_b", "sampled", "failed", 0, 3, "failed"),
)


@pytest.mark.parametrize(
    ("metric", "rates", "units", "completions"),
    [
        ("greedy_pass1", [1, 0], [1, 1], 1),
        ("cases_greedy", [1, 2 / 3], [3, 3], 1),
        ("sampled_exact", [0.25, 0.75], [4, 4], 4),
        ("pass2", [0.5, 1.0], [1, 1], 4),
        ("cases_sampled", [4 / 12, 9 / 12], [12, 12], 4),
        ("invalid_sampled", [0.5, 0], [4, 4], 4),
        ("rewarded_property_failed", [0.2, 0], [5, 5], 5),
    ],
)
def test_each_metric_by_hand(metric, rates, units, completions):
    scores = score(TWO_TASKS, ks=(1, 2))
    assert scores.rates[metric].tolist() == pytest.approx(rates)
    assert scores.units[metric].tolist() == units
    assert scores.completions_a_task[metric] == completions


def test_greedy_alone_has_no_sampled_metrics():
    scores = score(TWO_TASKS[TWO_TASKS["mode"] == "greedy"], ks=(1, 8))
    assert set(scores.rates) == {"greedy_pass1", "cases_greedy", "rewarded_property_failed"}


def test_k_beyond_the_samples_is_an_error():
    with pytest.raises(ValueError, match=r"pass@8 needs .* 4 samples"):
        score(TWO_TASKS, ks=(1, 8))


def test_tasks_with_unequal_samples_have_no_pass_at_k():
    with pytest.raises(ValueError, match="between 3 and 4 samples"):
        score(TWO_TASKS.drop(index=9), ks=(2,))


def test_a_file_of_two_checkpoints_is_refused(tmp_path):
    pd.concat([TWO_TASKS.assign(checkpoint=name, stop="parses") for name in ("a", "b")]).to_parquet(tmp_path / "two.parquet")
    with pytest.raises(ValueError, match=r"two.parquet must hold the completions of one checkpoint, not of 2"):
        score_file(tmp_path / "two.parquet", ks=(1,))
