"""Tests: exact sign flips over paired seeds, exact McNemar over tasks, Holm's correction."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from statsmodels.stats.multitest import multipletests

EXACT_FLIPS = 2**16
"""Most sign patterns that are enumerated; with more (over 16 seeds) this many are drawn."""


@dataclass(frozen=True)
class SignFlip:
    """A two-sided p with the smallest p that so few seeds can reach."""

    p: float
    floor: float


@dataclass(frozen=True)
class McNemar:
    """Tasks that turned right (`gains`) and wrong (`losses`), and the exact two-sided p."""

    gains: int
    losses: int
    p: float


def sign_flip(differences_S: ArrayLike, rng: np.random.Generator) -> SignFlip:
    """Test whether paired differences are symmetric about 0, by flipping their signs; up to 16 seeds exactly, then by Monte Carlo.

    The floor is 2 / 2^S (all signs agree), and in Monte Carlo 2 / (draws + 1): such a p is never 0.
    """
    differences_S = np.asarray(differences_S, dtype=float)
    patterns = 2 ** len(differences_S)
    floor = 2 / patterns if patterns <= EXACT_FLIPS else 2 / (EXACT_FLIPS + 1)
    if len(differences_S) < 2:
        return SignFlip(1.0, 1.0)  # one seed: both signs are as extreme
    result = stats.permutation_test(
        (differences_S,), np.mean, permutation_type="samples", vectorized=True, n_resamples=EXACT_FLIPS, alternative="two-sided", rng=rng
    )
    return SignFlip(float(result.pvalue), floor)


def mcnemar(before_T: ArrayLike, after_T: ArrayLike) -> McNemar:
    """Compare two booleans a task; the tasks of one family are alike, so this describes one seed and infers nothing beyond it."""
    before_T, after_T = np.asarray(before_T, dtype=bool), np.asarray(after_T, dtype=bool)
    gains = int((after_T & ~before_T).sum())
    losses = int((before_T & ~after_T).sum())
    p = stats.binomtest(min(gains, losses), gains + losses).pvalue if gains + losses else 1.0
    return McNemar(gains, losses, float(p))


def discordant_needed(alpha: float, comparisons: int) -> int:
    """Return the fewest tasks, all of them turned the same way, that McNemar's test calls significant as the best of so many tests.

    Holm multiplies the smallest p by the number of tests, and n such tasks have p = 2 / 2^n; the product must lie below `alpha`.
    """
    return math.floor(math.log2(2 * comparisons / alpha)) + 1


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return Holm's adjusted p values; the family of tests is fixed before the run."""
    return np.asarray(multipletests(p_values, method="holm")[1], dtype=np.float64)
