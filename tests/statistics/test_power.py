"""Power of the paired test: against statsmodels, against a simulation of the test itself, and by its own definitions."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from glint.statistics.power import (
    MOST_SEEDS,
    detectable_effect,
    deviation,
    fewest_for_sign_flip,
    paired_power,
    seeds_needed,
    sign_flip_floor,
)
from glint.statistics.significance import sign_flip


@pytest.mark.parametrize("seeds", [2, 3, 5, 10, 40])
@pytest.mark.parametrize("effect", [-3.0, 0.5, 2.0])
@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_power_is_that_of_statsmodels(seeds: int, effect: float, alpha: float) -> None:
    expected = TTestPower().power(abs(effect) / 4, nobs=seeds, alpha=alpha, alternative="two-sided")
    assert paired_power(effect, 4.0, seeds, alpha) == pytest.approx(expected, abs=1e-9)


def test_power_is_how_often_the_test_finds_the_effect() -> None:
    differences = np.random.default_rng(5).normal(6.0, 9.0, size=(40_000, 7))
    found = np.mean(stats.ttest_1samp(differences, 0.0, axis=1).pvalue < 0.05)
    assert paired_power(6.0, 9.0, 7) == pytest.approx(found, abs=0.01)


@pytest.mark.parametrize(("effect", "seeds"), [(12.0, 10), (8.0, 40), (22.0, 2)])
def test_power_is_a_number_where_statsmodels_gives_none(effect: float, seeds: int) -> None:
    differences = np.random.default_rng(5).normal(effect, 4.0, size=(20_000, seeds))
    found = np.mean(stats.ttest_1samp(differences, 0.0, axis=1).pvalue < 0.05)
    assert paired_power(effect, 4.0, seeds) == pytest.approx(found, abs=0.01)


def test_without_an_effect_power_is_the_level_and_one_seed_has_none() -> None:
    assert paired_power(0.0, 2.0, 6, 0.05) == pytest.approx(0.05)
    assert paired_power(100.0, 2.0, 1) == 0


@pytest.mark.parametrize(("effect", "sd", "power"), [(10, 15, 0.8), (10, 15, 0.95), (3, 1, 0.8), (1, 30, 0.8)])
def test_needed_seeds_are_the_first_that_suffice(effect: float, sd: float, power: float) -> None:
    needed = int(seeds_needed(effect, sd, power))
    assert paired_power(effect, sd, needed) >= power
    assert needed == 2 or paired_power(effect, sd, needed - 1) < power
    solved = TTestPower().solve_power(effect / sd, alpha=0.05, power=power, alternative="two-sided")
    assert needed == max(2, math.ceil(solved))


def test_a_very_large_effect_needs_two_seeds_and_a_very_small_one_more_than_there_are() -> None:
    assert seeds_needed(100, 1) == 2
    assert seeds_needed(1e-4, 1) == math.inf
    assert paired_power(1e-4, 1, MOST_SEEDS) < 0.8


@pytest.mark.parametrize("seeds", [2, 5, 20])
def test_the_detectable_effect_is_found_with_the_asked_chance(seeds: int) -> None:
    effect = detectable_effect(7.0, seeds, 0.8)
    assert paired_power(effect, 7.0, seeds) == pytest.approx(0.8, abs=1e-6)
    assert seeds_needed(effect * 1.001, 7.0, 0.8) == seeds


def test_the_interval_of_the_deviation_covers_the_true_one_as_often_as_it_says() -> None:
    samples = np.random.default_rng(6).normal(0.0, 3.0, size=(4000, 5))
    intervals = [deviation(sample, 0.9) for sample in samples]
    assert intervals[0].estimate == pytest.approx(samples[0].std(ddof=1))
    assert np.mean([one.low <= 3.0 <= one.high for one in intervals]) == pytest.approx(0.9, abs=0.02)


def test_one_seed_shows_no_spread() -> None:
    with pytest.raises(ValueError, match="1 seed in hand shows no spread"):
        deviation([0.4])


@pytest.mark.parametrize("seeds", [2, 5, 6])
def test_the_floor_is_the_p_of_differences_that_all_agree(seeds: int) -> None:
    test = sign_flip(np.arange(1, seeds + 1), np.random.default_rng(0))
    assert sign_flip_floor(seeds) == test.floor == pytest.approx(test.p)


def test_the_fewest_seeds_of_a_sign_flip_are_the_first_whose_floor_lies_below_the_level() -> None:
    for alpha in (0.05, 0.01, 0.0625):
        fewest = fewest_for_sign_flip(alpha)
        assert sign_flip_floor(fewest) < alpha <= sign_flip_floor(fewest - 1)


def test_nobody_is_told_more_seeds_than_the_most() -> None:
    assert seeds_needed(0.0088, 1) == math.inf  # 101,357
    assert seeds_needed(0.00886, 1) == pytest.approx(99_988, abs=1)
