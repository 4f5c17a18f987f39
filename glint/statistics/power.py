"""How many seeds a comparison needs: power of the two-sided paired t test, and how well few seeds know it.

The mean of n paired differences with mean `effect` and standard deviation `sd`, divided by its standard error, follows a noncentral t
with n - 1 degrees of freedom and noncentrality effect / sd * sqrt(n) (Cohen 1988, "Statistical Power Analysis", section 2.2).
Effects and standard deviations have the same unit, whichever it is.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from glint.statistics.intervals import Interval

MOST_SEEDS = 100_000
"""Beyond so many nobody plans; a smaller effect counts as out of reach."""


def paired_power(effect: float, sd: float, seeds: int, alpha: float = 0.05) -> float:
    """Return the chance that the test of `seeds` paired differences finds an effect of this size at level `alpha`; 0 for one seed."""
    if seeds < 2:
        return 0.0
    freedom, noncentrality = seeds - 1, abs(effect) / sd * math.sqrt(seeds)
    critical = stats.t.ppf(1 - alpha / 2, freedom)
    # the lower tail is the upper one of the mirrored distribution: SciPy's lower tail is NaN where it is next to nothing
    return float(stats.nct.sf(critical, freedom, noncentrality) + stats.nct.sf(critical, freedom, -noncentrality))


def seeds_needed(effect: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """Return the fewest seeds, 2 or more, at which the test finds the effect with chance `power`; infinity beyond `MOST_SEEDS`."""
    if paired_power(effect, sd, 2, alpha) >= power:
        return 2
    few, enough = 2, 4
    while paired_power(effect, sd, enough, alpha) < power:
        if enough == MOST_SEEDS:
            return math.inf
        few, enough = enough, min(2 * enough, MOST_SEEDS)
    while enough - few > 1:  # power grows with the number of seeds
        middle = (few + enough) // 2
        few, enough = (few, middle) if paired_power(effect, sd, middle, alpha) >= power else (middle, enough)
    return enough


def detectable_effect(sd: float, seeds: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """Return the smallest effect that `seeds` seeds, 2 or more, find with chance `power`, which must exceed `alpha`."""

    def missing(effect: float) -> float:
        return paired_power(effect, sd, seeds, alpha) - power

    enough = sd
    while missing(enough) < 0:
        enough *= 2
    return float(optimize.brentq(missing, 0.0, enough))


def deviation(differences_S: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the standard deviation of differences with its chi-square interval, sd * sqrt((n - 1) / quantile), of normal differences.

    Raises ValueError for fewer than two seeds: they show no spread.
    """
    differences_S = np.asarray(differences_S, dtype=float)
    freedom = len(differences_S) - 1
    if freedom < 1:
        raise ValueError(f"{len(differences_S)} seed in hand shows no spread between seeds; two show some, five or more tell something")
    sd = float(differences_S.std(ddof=1))
    low, high = sd * np.sqrt(freedom / stats.chi2.ppf([(1 + confidence) / 2, (1 - confidence) / 2], freedom))
    return Interval(sd, float(low), float(high))


def sign_flip_floor(seeds: int) -> float:
    """Return the smallest two-sided p that flipping the signs of so many differences can give, 2 / 2^n."""
    return min(1.0, 2.0 ** (1 - seeds))


def fewest_for_sign_flip(alpha: float = 0.05) -> int:
    """Return the fewest seeds with which a sign-flip p can lie below `alpha`."""
    return math.floor(math.log2(2 / alpha)) + 1
