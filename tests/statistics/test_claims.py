"""Every branch of the replication verdict on made-up intervals."""

import math

import pytest

from glint.statistics.claims import (
    few_values_could_miss,
    judge_constant,
    judge_count,
    judge_design,
    judge_effect,
    judge_no_significance,
    judge_null,
    misses_half,
)


@pytest.mark.parametrize(
    ("published", "low", "high", "verdict"),
    [
        (0.6, 0.4, 0.8, "replicated"),
        (0.6, 0.05, 0.2, "replicated"),  # the published side of 0 decides first, whatever the size
        (0.6, -0.4, -0.1, "not replicated"),  # wholly on the other side
        (0.6, -0.1, 0.2, "not replicated"),  # reaches 0, excludes half of 0.6
        (0.6, -0.1, 0.3, "undecided"),  # reaches both
        (0.6, 0.0, 0.5, "undecided"),  # 0 is no side
        (-0.2, -0.3, -0.1, "replicated"),
        (-0.2, 0.1, 0.3, "not replicated"),
        (-0.2, -0.05, 0.1, "not replicated"),
        (-0.2, -0.15, 0.1, "undecided"),
        (0.6, math.nan, math.nan, "undecided"),  # one seed
    ],
)
def test_effect(published, low, high, verdict):
    assert judge_effect(published, low, high) == verdict


def test_an_effect_of_zero_is_no_effect_claim():
    with pytest.raises(ValueError, match="null claim"):
        judge_effect(0.0, -0.1, 0.1)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.05, 0.1, "replicated"),
        (0.01, 0.09, "replicated"),  # excludes 0, but within the margin: too small to matter
        (0.05, 0.3, "not replicated"),
        (-0.3, -0.11, "not replicated"),
        (-0.2, 0.05, "undecided"),
        (math.nan, math.nan, "undecided"),
    ],
)
def test_null(low, high, verdict):
    assert judge_null(low, high, margin=0.1) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.5, 0.9, "replicated"), (0.7, 0.9, "not replicated"), (math.nan, math.nan, "undecided")]
)
def test_count(low, high, verdict):
    assert judge_count(16 / 24, low, high) == verdict


@pytest.mark.parametrize(("ours", "verdict"), [(25730592, "replicated"), (25730593, "not replicated")])
def test_constant(ours, verdict):
    assert judge_constant(25730592, ours) == verdict


@pytest.mark.parametrize(
    ("ours", "verdict"), [(105.0, "replicated"), (95.0, "replicated"), (105.1, "not replicated"), (94.9, "not replicated")]
)
def test_design(ours, verdict):
    assert judge_design(100, ours) == verdict


@pytest.mark.parametrize(
    ("published", "low", "high", "missed"),
    [(0.6, 0.1, 0.29, True), (0.6, 0.1, 0.31, False), (-0.6, -0.29, 0, True), (-0.6, -0.4, 0, False)],
)
def test_misses_half(published, low, high, missed):
    assert misses_half(published, low, high) is missed


@pytest.mark.parametrize(
    ("p_values", "verdict"),
    [([1.0, 0.3], "replicated"), ([0.05], "replicated"), ([0.01, 0.3], "undecided"), ([0.01, 0.04], "not replicated")],
)
def test_no_significance(p_values, verdict):
    assert judge_no_significance(p_values, 0.05) == verdict


def test_an_interval_of_four_fifths_of_all_shares_says_next_to_nothing():
    assert few_values_could_miss(0.1, 0.9)
    assert few_values_could_miss(0.0, 1.0)
    assert not few_values_could_miss(0.2, 0.99)
