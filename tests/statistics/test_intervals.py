"""Intervals against hand computation, statsmodels' own definition, and simulation."""

import numpy as np
import pytest
from scipy import stats

from glint.statistics.intervals import CrossedBootstrap, prediction_interval, student, wilson

FAMILIES = np.repeat(["double", "even", "increment"], 8)


def rng(seed=0):
    return np.random.default_rng(seed)


def crossed_bootstrap(values, families, generator, **options):
    return CrossedBootstrap(len(values), families, generator, **options).interval(values)


def test_estimate_is_the_plain_mean_and_lies_inside():
    values = rng(1).random((5, 24))
    interval = crossed_bootstrap(values, FAMILIES, rng())
    assert interval.estimate == pytest.approx(values.mean())
    assert interval.low < interval.estimate < interval.high


def test_same_generator_same_interval():
    values = rng(1).random((5, 24))
    assert crossed_bootstrap(values, FAMILIES, rng(3)) == crossed_bootstrap(values, FAMILIES, rng(3))


def test_matches_a_plain_loop_over_draws():
    values, generator, means = rng(2).random((4, 24)), rng(5), []
    for _ in range(4000):
        seeds = generator.integers(4, size=4)
        tasks = np.concatenate([start + generator.integers(8, size=8) for start in (0, 8, 16)])
        means.append(values[np.ix_(seeds, tasks)].mean())
    low, high = np.quantile(means, [0.025, 0.975])
    interval = crossed_bootstrap(values, FAMILIES, rng(6))
    assert interval.low == pytest.approx(low, abs=0.01)
    assert interval.high == pytest.approx(high, abs=0.01)


def test_resampling_families_matches_a_plain_loop():
    values, generator, means = rng(2).random((4, 24)) * np.repeat([0.2, 0.6, 1.0], 8), rng(5), []
    for _ in range(4000):
        seeds = generator.integers(4, size=4)
        tasks = np.concatenate([8 * family + generator.integers(8, size=8) for family in generator.integers(3, size=3)])
        means.append(values[np.ix_(seeds, tasks)].mean())
    low, high = np.quantile(means, [0.025, 0.975])
    interval = crossed_bootstrap(values, FAMILIES, rng(6), resample_families=True)
    assert interval.low == pytest.approx(low, abs=0.01)
    assert interval.high == pytest.approx(high, abs=0.01)


def test_families_that_differ_widen_the_interval_only_when_they_are_drawn():
    values = np.tile(np.repeat([0.0, 0.5, 1.0], 8), (5, 1))
    fixed = crossed_bootstrap(values, FAMILIES, rng())
    drawn = crossed_bootstrap(values, FAMILIES, rng(), resample_families=True)
    assert fixed.low == fixed.high == 0.5
    assert drawn.low < 0.2
    assert drawn.high > 0.8


def test_a_mask_leaves_the_other_tasks_out():
    values = rng(1).random((5, 24))
    draws = CrossedBootstrap(5, FAMILIES, rng())
    changed = np.where(FAMILIES == "even", values, 9.0)
    assert draws.interval(values, tasks_T=FAMILIES == "even") == draws.interval(changed, tasks_T=FAMILIES == "even")
    assert draws.interval(values, tasks_T=FAMILIES == "even").estimate == pytest.approx(values[:, 8:16].mean())


def test_the_level_sets_the_width():
    values, draws = rng(1).random((5, 24)), CrossedBootstrap(5, FAMILIES, rng())
    wide, narrow = draws.interval(values, confidence=0.99), draws.interval(values, confidence=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_constant_data_gives_its_value_exactly():
    interval = crossed_bootstrap(np.full((3, 24), 0.1), FAMILIES, rng())
    assert (interval.estimate, interval.low, interval.high) == (pytest.approx(0.1), interval.estimate, interval.estimate)


def test_one_seed_has_an_estimate_and_no_interval():
    interval = crossed_bootstrap(np.ones((1, 24)), FAMILIES, rng())
    assert interval.estimate == 1.0
    assert np.isnan([interval.low, interval.high]).all()


def coverage(seeds, generator, runs=2000):
    """Share of simulated studies whose nominal 95 % interval holds the true rate: seed sd 1 logit, true rate 1/2."""
    hits = 0
    for _ in range(runs):
        rates = 1 / (1 + np.exp(-generator.normal(size=(seeds, 1))))
        passed = generator.random((seeds, 24)) < rates
        interval = crossed_bootstrap(passed, FAMILIES, generator, resamples=400)
        hits += interval.low <= 0.5 <= interval.high
    return hits / runs


@pytest.mark.parametrize(("seeds", "expected"), [(3, 0.87), (5, 0.92), (10, 0.95)])
def test_coverage_in_simulation(seeds, expected):
    """Three to five seeds fall short of 95 %; the report says so. The tolerance is three standard errors of 2,000 runs."""
    assert coverage(seeds, rng(seeds)) == pytest.approx(expected, abs=3 * np.sqrt(expected * (1 - expected) / 2000))


def test_where_seeds_differ_more_than_items_few_of_them_need_students_interval():
    """As in recall studies. The tolerances are three standard errors of 600 runs."""
    generator, hits = rng(11), np.zeros(2)
    for _ in range(600):
        values_ST = generator.normal(0, 0.1, (5, 1)) + generator.normal(0, 0.05, (1, 40)) + generator.normal(0, 0.15, (5, 40))
        crossed = crossed_bootstrap(values_ST, np.zeros(40, dtype=str), generator, resamples=400)
        hits += [interval.low <= 0 <= interval.high for interval in (crossed, student(values_ST.mean(axis=1)))]
    assert hits / 600 == pytest.approx([0.88, 0.95], abs=0.04)


def test_a_bootstrap_that_pools_seeds_and_tasks_covers_far_less():
    generator, hits = rng(4), 0
    for _ in range(200):
        rates = 1 / (1 + np.exp(-generator.normal(size=(5, 1))))
        pooled = (generator.random((5, 24)) < rates).ravel()
        low, high = np.quantile(generator.binomial(120, pooled.mean(), size=400) / 120, [0.025, 0.975])
        hits += low <= 0.5 <= high
    assert hits / 200 < 0.75


def test_wilson_by_its_formula():
    z, p, n = stats.norm.ppf(0.975), 16 / 24, 24
    centre, half = (p + z**2 / (2 * n)) / (1 + z**2 / n), z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    interval = wilson(16, 24)
    assert (interval.estimate, interval.low, interval.high) == pytest.approx((p, centre - half, centre + half))


def test_prediction_by_hand():
    rates = np.array([0.2, 0.8, 0.4, 0.6])  # mean 0.5, sd sqrt(0.2 / 3), wider than the binomial share's
    half = 3.182446 * np.sqrt(0.2 / 3) * np.sqrt(1.25)
    assert half > 0.5
    assert (prediction_interval(rates, 24).low, prediction_interval(rates, 24).high) == (0.0, 1.0)
    narrow = prediction_interval(rates, 24, confidence=0.5)
    assert narrow.high == pytest.approx(0.5 + 0.764892 * np.sqrt(0.2 / 3) * np.sqrt(1.25))


def test_prediction_from_equal_seeds_keeps_the_binomial_width():
    interval = prediction_interval(np.full(5, 0.5), 24)
    assert interval.high - 0.5 == pytest.approx(1.959964 * np.sqrt(0.25 / 24) * np.sqrt(1.2))
    assert 0 < prediction_interval(np.zeros(5), 24).high < 2 / 24
    assert prediction_interval(np.full(5, 0.5), 8).high > interval.high


def test_prediction_covers_one_more_seed_in_simulation():
    generator, hits = rng(8), 0
    for _ in range(1500):
        rates = 1 / (1 + np.exp(-0.7 * generator.normal(size=6)))
        counts = generator.binomial(24, rates) / 24
        interval = prediction_interval(counts[:5], 24)
        hits += interval.low <= counts[5] <= interval.high
    assert 0.93 <= hits / 1500 <= 0.99


def test_prediction_from_one_seed_is_refused_an_interval():
    assert np.isnan(prediction_interval([0.4], 24).low)


def test_student_is_scipys_interval_of_a_mean():
    values = rng(4).normal(0.1, 0.03, size=10)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    ours = student(values, 0.9)
    assert (ours.estimate, ours.low, ours.high) == pytest.approx((values.mean(), theirs.low, theirs.high))


def test_student_of_equal_values_is_a_point_and_of_one_value_has_no_ends():
    assert student([0.25] * 4) == student([0.25] * 9)
    assert (student([0.25] * 4).low, student([0.25] * 4).high) == (0.25, 0.25)
    assert student([0.25]).estimate == 0.25
    assert np.isnan(student([0.25]).low)
    assert np.isnan(student([0.25]).high)


def test_student_covers_the_truth_as_often_as_it_says():
    generator = rng(5)
    covered = [interval.low < 0.1 < interval.high for interval in (student(generator.normal(0.1, 0.03, size=10)) for _ in range(2000))]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
