"""The replication verdict: one written rule a kind of claim, fixed before the run. Every function is pure."""

import math
from collections.abc import Sequence
from typing import Literal

Verdict = Literal["replicated", "not replicated", "undecided"]
DESIGN_TOLERANCE = 0.05
WIDE = 0.8
"""Width of an interval for a share, of 1, from which on few values lie outside."""


def judge_constant(published: float, ours: float) -> Verdict:
    """A constant, as a parameter count: equal or not."""
    return "replicated" if ours == published else "not replicated"


def judge_design(published: float, ours: float) -> Verdict:
    """A value that depends on wording, as a token count: within 5 % of the published one or not."""
    return "replicated" if abs(ours - published) <= DESIGN_TOLERANCE * abs(published) else "not replicated"


def judge_effect(published: float, low: float, high: float) -> Verdict:
    """An effect (before/after, arm against arm), given our interval; the clauses are read in this order.

    Replicated: the interval lies wholly on the published side of 0. Not replicated: wholly on the other side, or it reaches 0 but not half
    of the published effect. Undecided: the rest, also without an interval (one seed). Raises ValueError for a published effect of 0,
    which is a null claim.
    """
    if published == 0:
        raise ValueError("a published effect of 0 has no side: judge it as a null claim")
    low, high = (low, high) if published > 0 else (-high, -low)
    if low > 0:
        return "replicated"
    return "not replicated" if high < abs(published) / 2 else "undecided"


def judge_null(low: float, high: float, margin: float) -> Verdict:
    """A claim of no difference: within plus or minus `margin` it is replicated; else, excluding 0, not replicated; else undecided."""
    if -margin <= low and high <= margin:
        return "replicated"
    return "not replicated" if low > 0 or high < 0 else "undecided"


def judge_count(published: float, low: float, high: float) -> Verdict:
    """A figure of a single run: inside or outside our prediction interval for one more seed; undecided without one (one seed)."""
    if math.isnan(low):
        return "undecided"
    return "replicated" if low <= published <= high else "not replicated"


def few_values_could_miss(low: float, high: float) -> bool:
    """Whether the prediction interval of a share is `WIDE` or wider, so that being inside says next to nothing."""
    return high - low >= WIDE


def judge_no_significance(p_values: Sequence[float], alpha: float) -> Verdict:
    """A test that found nothing: replicated where ours reaches `alpha` in no seed, not replicated where it does in all, else undecided."""
    found = [p < alpha for p in p_values]
    if not any(found):
        return "replicated"
    return "not replicated" if all(found) else "undecided"


def misses_half(published: float, low: float, high: float) -> bool:
    """Whether an interval stays below half of the published effect, in its direction: a replicated sign with a much smaller size."""
    return high < published / 2 if published > 0 else low > published / 2
