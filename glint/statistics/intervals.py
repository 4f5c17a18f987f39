"""Intervals: crossed bootstrap, Student's t, Wilson, and the prediction of one more seed.

Shape suffixes: S seeds, T tasks, F families, B bootstrap draws.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

TASKS_WITHIN_FAMILIES = "crossed bootstrap: seeds x tasks within families"
FAMILIES_TOO = "crossed bootstrap: seeds x families x tasks"
OVER_SEEDS = "Student's t: paired seeds"
STRUCTURES_TOO = "crossed bootstrap: seeds x structures"
IMAGES_TOO = "crossed bootstrap: seeds x images"
TEXTS_TOO = "crossed bootstrap: seeds x texts"


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its interval; the ends are NaN where the data cannot give one."""

    estimate: float
    low: float
    high: float


class CrossedBootstrap:
    """Draws of seeds and, independently, of tasks within their family, for values of shape (S, T): every seed met the same tasks.

    Every seed of a draw meets the same drawn tasks (Owen 2007, "The pigeonhole bootstrap"). One set of draws serves many outcomes.
    With `resample_families` the families are drawn first, for statements beyond these families.
    """

    def __init__(
        self, seeds: int, families_T: ArrayLike, rng: np.random.Generator, *, resamples: int = 10_000, resample_families: bool = False
    ):
        self.seed_counts_BS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples).astype(float)
        self.task_counts_BT = _task_counts(np.asarray(families_T), rng, resamples, resample_families).astype(float)
        self._counts: dict[bytes, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def interval(self, values_ST: ArrayLike, *, tasks_T: ArrayLike | None = None, confidence: float = 0.95) -> Interval:
        """Return the mean over seeds and tasks with its percentile interval; the mask `tasks_T` restricts it to some tasks.

        One seed has no spread between seeds: the ends are NaN. Values that are all equal give that value as both ends.
        """
        values_ST = np.asarray(values_ST, dtype=float)
        mask_T = np.ones(values_ST.shape[1], dtype=bool) if tasks_T is None else np.asarray(tasks_T, dtype=bool)
        values_ST = values_ST[:, mask_T]
        estimate = float(values_ST.mean())
        if len(values_ST) < 2:
            return Interval(estimate, np.nan, np.nan)
        if np.ptp(values_ST) == 0:  # rounding of the division below must not show as a spread
            return Interval(estimate, estimate, estimate)
        counts_BT, tasks_B = self._task_counts(mask_T)
        means_B = np.einsum("bs,bs->b", counts_BT @ values_ST.T, self.seed_counts_BS) / (len(values_ST) * tasks_B)
        low, high = np.quantile(means_B, [(1 - confidence) / 2, (1 + confidence) / 2])
        return Interval(estimate, float(low), float(high))

    def _task_counts(self, mask_T: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the counts of the tasks of `mask_T`, and their sum, in each draw; cut out once for the many outcomes of one mask."""
        key = mask_T.tobytes()
        if key not in self._counts:
            counts_BT = self.task_counts_BT[:, mask_T]
            self._counts[key] = counts_BT, counts_BT.sum(axis=1)
        return self._counts[key]


def _task_counts(families_T: NDArray[np.str_], rng: np.random.Generator, resamples: int, resample_families: bool) -> NDArray[np.int64]:
    """Return how often each draw holds each task, shape (B, T)."""
    names_F = np.unique(families_T)
    families = len(names_F)
    if resample_families:
        family_counts_BF = rng.multinomial(families, np.full(families, 1 / families), size=resamples)
    else:
        family_counts_BF = np.ones((resamples, families), dtype=np.int64)
    counts_BT = np.zeros((resamples, len(families_T)), dtype=np.int64)
    for column, name in enumerate(names_F):
        members = np.flatnonzero(families_T == name)
        # a family drawn c times brings c independent samples of its n tasks: one multinomial of c * n
        counts_BT[:, members] = rng.multinomial(family_counts_BF[:, column] * len(members), np.full(len(members), 1 / len(members)))
    return counts_BT


def student(values_S: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the mean over seeds with Student's interval, t * sd / sqrt(S); it speaks of more seeds on the same tasks.

    One seed has no spread: the ends are NaN.
    """
    values_S = np.asarray(values_S, dtype=float)
    mean = float(values_S.mean())
    if len(values_S) < 2:
        return Interval(mean, np.nan, np.nan)
    half = stats.t.ppf((1 + confidence) / 2, len(values_S) - 1) * values_S.std(ddof=1) / np.sqrt(len(values_S))
    return Interval(mean, mean - float(half), mean + float(half))


def welch(ours_S: ArrayLike, theirs_S: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the difference of two means over seeds that have nothing in common, with Welch's interval (unequal variances).

    Fewer than two seeds on a side, or no spread on either, give no interval: the ends are NaN.
    """
    ours_S, theirs_S = np.asarray(ours_S, dtype=float), np.asarray(theirs_S, dtype=float)
    difference = float(ours_S.mean() - theirs_S.mean())
    if min(len(ours_S), len(theirs_S)) < 2 or np.ptp(ours_S) == np.ptp(theirs_S) == 0:
        return Interval(difference, np.nan, np.nan)
    ends = stats.ttest_ind(ours_S, theirs_S, equal_var=False).confidence_interval(confidence)
    return Interval(difference, float(ends.low), float(ends.high))


def wilson(count: int, of: int, confidence: float = 0.95) -> Interval:
    """Return a proportion with its Wilson interval: independent trials only, so within one seed it is descriptive."""
    low, high = proportion_confint(count, of, alpha=1 - confidence, method="wilson")
    return Interval(count / of, float(low), float(high))


def prediction_interval(rates_S: ArrayLike, units: int, confidence: float = 0.95) -> Interval:
    """Return the mean rate over seeds with the interval in which the rate of one more seed on `units` tasks should fall.

    Half the width is the larger of t * sd * sqrt(1 + 1/S), Student's t on seeds, and z * sqrt(p (1 - p) / units * (1 + 1/S)), the binomial
    chance of meeting other tasks, as the published run did; p is the mean rate, smoothed by half a success, so that 0 of 24 in every seed
    keeps a width. The ends are cut to [0, 1]. One seed cannot predict another: the ends are NaN.
    """
    rates_S = np.asarray(rates_S, dtype=float)
    seeds = len(rates_S)
    mean = float(rates_S.mean())
    if seeds < 2:
        return Interval(mean, np.nan, np.nan)
    smoothed = (mean * seeds * units + 0.5) / (seeds * units + 1)
    half = _half_width(rates_S, float(np.sqrt(smoothed * (1 - smoothed) / units)), confidence)
    return Interval(mean, max(0.0, mean - half), min(1.0, mean + half))


def prediction_of_mean(means_S: ArrayLike, errors_S: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the mean over seeds with the interval in which one more seed's mean of a real-valued score should fall.

    As `prediction_interval`, with the chance of meeting other items given by `errors_S`, each seed's standard error over its items.
    """
    means_S = np.asarray(means_S, dtype=float)
    mean = float(means_S.mean())
    if len(means_S) < 2:
        return Interval(mean, np.nan, np.nan)
    half = _half_width(means_S, float(np.asarray(errors_S, dtype=float).mean()), confidence)
    return Interval(mean, mean - half, mean + half)


def _half_width(means_S: NDArray[np.float64], error: float, confidence: float) -> float:
    """Return half the width of a prediction: the larger of the spread between seeds and the `error` of one seed."""
    seeds = len(means_S)
    between_seeds = stats.t.ppf((1 + confidence) / 2, seeds - 1) * means_S.std(ddof=1)
    other_items = stats.norm.ppf((1 + confidence) / 2) * error
    return float(max(between_seeds, other_items) * np.sqrt(1 + 1 / seeds))
