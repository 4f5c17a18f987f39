"""Tests of the tests: enumeration by hand, published p values, scipy."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from glint.statistics.significance import EXACT_FLIPS, discordant_needed, holm, mcnemar, sign_flip


def enumerate_flips(differences):
    observed = abs(np.mean(differences))
    means = [abs(np.mean(np.multiply(differences, signs))) for signs in product((1, -1), repeat=len(differences))]
    return np.mean([mean >= observed - 1e-12 for mean in means])


@pytest.mark.parametrize("seeds", [2, 3, 5, 8, 10])
def test_sign_flip_enumerates_every_pattern(seeds):
    differences = np.random.default_rng(seeds).normal(0.4, 1, size=seeds)
    result = sign_flip(differences, np.random.default_rng(0))
    assert result.p == pytest.approx(enumerate_flips(differences))


@pytest.mark.parametrize(("seeds", "floor"), [(5, 0.0625), (6, 0.03125), (8, 0.0078125), (10, 0.001953125)])
def test_sign_flip_reaches_its_floor_when_all_signs_agree(seeds, floor):
    result = sign_flip(np.arange(1, seeds + 1), np.random.default_rng(0))
    assert result.floor == floor
    assert result.p == pytest.approx(floor)


def test_sign_flip_of_no_difference_is_one():
    assert sign_flip(np.zeros(5), np.random.default_rng(0)).p == 1.0


def test_one_seed_decides_nothing():
    assert sign_flip([0.7], np.random.default_rng(0)).p == 1.0


def test_many_seeds_draw_patterns_and_p_is_never_zero():
    result = sign_flip(np.full(30, 1.0), np.random.default_rng(0))
    assert 0 < result.p <= result.floor == 2 / (EXACT_FLIPS + 1)


def test_mcnemar_of_the_published_table():
    result = mcnemar(np.zeros(24), np.arange(24) < 16)
    assert (result.gains, result.losses) == (16, 0)
    assert result.p == pytest.approx(0.0000305, rel=1e-3)


def test_mcnemar_counts_gains_and_losses_apart():
    before, after = [1, 1, 0, 0, 0, 1], [0, 1, 1, 1, 1, 1]
    result = mcnemar(before, after)
    assert (result.gains, result.losses) == (3, 1)
    assert result.p == pytest.approx(2 * stats.binom.cdf(1, 4, 0.5))


def test_mcnemar_without_a_change_is_one():
    assert mcnemar([1, 0], [1, 0]).p == 1.0


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_a_p_that_only_reaches_the_level_is_not_significant():
    level = 2 / 2**5
    assert discordant_needed(level, 1) == 6
    assert mcnemar([False] * 5, [True] * 5).p == level


@pytest.mark.parametrize(("comparisons", "needed"), [(1, 6), (2, 7), (7, 9)])
def test_fewer_tasks_than_needed_are_never_significant(comparisons, needed):
    def best(tasks):
        found = mcnemar([False] * tasks, [True] * tasks).p
        return holm([found, *[1.0] * (comparisons - 1)])[0]

    assert discordant_needed(0.05, comparisons) == needed
    assert best(needed) < 0.05 <= best(needed - 1)
