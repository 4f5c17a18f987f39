"""How many seeds does my question need? `python -m glint.power RUN [--study S] [--arm A] [--effect POINTS] [--power 0.8]`.

The spread between seeds is that of the run in the folder; an arm is set against the base arm of its study (or as the study's plan has
it), seed by seed, and the base arm of an rl study against itself before RL. Power is that of the two-sided paired t test.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from glint.config.errors import unknown
from glint.report.seed_values import CONTRASTS, PRIMARY, find_tables, points, read, seed_values
from glint.statistics.intervals import Interval
from glint.statistics.power import (
    MOST_SEEDS,
    detectable_effect,
    deviation,
    fewest_for_sign_flip,
    paired_power,
    seeds_needed,
    sign_flip_floor,
)
from glint.terminal import ending_with_its_reader, failing_in_one_sentence

SEEDS = (3, 5, 8, 10, 15, 20, 30)
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Effects of the table, as multiples of the one asked for."""
NO_SPREAD = 1e-9
"""A deviation so small comes from the rounding of shares."""
MOST_POINTS = {"gain": 100, "difference of two gains": 200, "difference of two shares": 100}
"""How large each can be, in points."""
SMALL = 1.0
"""An effect below so many points may be meant as a share."""
DEFAULT_EFFECT = {True: 10.0, False: 0.05}
"""In points of a share, in nats of a loss."""
TOO_WIDE = 10
"""Where the interval of the needed seeds spans more than this factor, the seeds in hand cannot tell it."""


@dataclass(frozen=True)
class Differences:
    """Paired differences, one a seed, and in words what they are."""

    says: str
    seeds: tuple[int, ...]
    values_S: NDArray[np.float64]
    """In points or in nats."""
    shares: bool
    """Whether the unit is points."""
    kind: str
    """What a difference is, where it is in points."""

    @property
    def most(self) -> float:
        """How large a difference can be."""
        return MOST_POINTS[self.kind] if self.shares else math.inf

    @property
    def unit(self) -> str:
        """The unit of the differences."""
        return "points" if self.shares else "nats"

    def shown(self, value: float) -> str:
        """Return a size as text."""
        return f"{value:.1f}" if self.shares else f"{value:.3f}"


def differences(folder: Path, study: str | None, arm: str | None, metric: str | None) -> Differences:
    """Return the differences between seeds of one study, the first unless named; raises ValueError, one sentence, for what is not there."""
    values = seed_values(folder)
    studies = values["study"].unique().tolist()
    if not studies:
        raise ValueError(f"{folder} holds no complete seed of any study")
    study = _known("study", study or studies[0], studies)
    own = values[values["study"] == study]
    table = str(own["table"].iloc[0])
    first = PRIMARY[table]
    metric = _known("metric", metric or first["metric"], own["metric"].unique().tolist())
    own = own[(own["metric"] == metric) & (own["scope"] == first["scope"]) & (own["stop"] == own["stop"].iloc[0])]
    arms = own["arm"].unique().tolist()
    if arm is not None:
        _known("arm", arm, arms, elsewhere=values.loc[values["arm"] == arm, "study"].unique().tolist())
    return _of_rl(own, arms[0], arm or arms[0]) if table == "seeds" else _of_contrast(own, read(folder, CONTRASTS[table]), arm)


def _known(what: str, word: str, known: list[str], elsewhere: Sequence[str] = ()) -> str:
    if word not in known:
        hint = f"; it is one of study {elsewhere[0]} (--study {elsewhere[0]})" if elsewhere else ""
        raise ValueError(unknown(what, word, known) + hint)
    return word


def _of_rl(rows: pd.DataFrame, base: str, arm: str) -> Differences:
    """Return the gain by RL of each seed, less that of the base arm where another arm is asked for."""
    gains = rows[rows["phase"] == "gain"].pivot(index="seed", columns="arm", values="value")
    one = gains[arm] if arm == base else (gains[arm] - gains[base])
    what = f"gain of arm {arm} by RL" if arm == base else f"gain of arm {arm} less gain of arm {base}"
    return _told(rows, what, one, "gain" if arm == base else "difference of two gains")


def _of_contrast(rows: pd.DataFrame, planned: pd.DataFrame, arm: str | None) -> Differences:
    """Return the differences of the first planned comparison, or of the first one in which `arm` takes part, at its last step."""
    planned = planned[planned["study"] == rows["study"].iloc[0]]
    asked = planned[(planned["arm"] == arm) | (planned["against"] == arm)] if arm else planned
    if asked.empty:
        raise ValueError(f"study {rows['study'].iloc[0]} plans no comparison of arm {arm}")
    row: Any = asked[asked["contrast"] == asked["contrast"].iloc[0]].iloc[-1]
    other_step = int(row.get("against_step", row["step"]))
    ours, theirs = (_at(rows, row[name], step) for name, step in (("arm", int(row["step"])), ("against", other_step)))
    what = f"arm {row['arm']} at step {row['step']} less arm {row['against']} at step {other_step}"
    return _told(rows, what, ours - theirs, "difference of two shares")


def _at(rows: pd.DataFrame, arm: str, step: int) -> pd.Series:
    chosen: pd.Series = rows[(rows["arm"] == arm) & (rows["step"] == step)].set_index("seed")["value"]
    return chosen


def _told(rows: pd.DataFrame, what: str, by_seed: pd.Series, kind: str) -> Differences:
    by_seed, first = by_seed.dropna().sort_index(), rows.iloc[0]
    shares = points(first["metric"])
    says = f"study {first['study']}: {what}, {first['metric']}, {first['scope']}"
    return Differences(says, tuple(map(int, by_seed.index)), by_seed.to_numpy(dtype=float) * (100 if shares else 1), shares, kind)


def lines(found: Differences, effect: float, power: float, alpha: float, confidence: float = 0.95) -> list[str]:
    """Return what is printed; raises ValueError for an impossible effect, for one seed, or where all seeds differ by the same amount."""
    if effect > found.most:
        raise ValueError(f"--effect {effect:g} cannot be: a {found.kind} cannot exceed {found.most:g} points")
    spread = deviation(found.values_S, confidence)
    if spread.estimate < NO_SPREAD:
        raise ValueError(f"{found.says}: all {len(found.seeds)} seeds differ by the same amount, so no spread between seeds is to be seen")
    shown = ", ".join(f"{seed}: {value:+.{1 if found.shares else 3}f}" for seed, value in zip(found.seeds, found.values_S, strict=True))
    return [
        found.says,
        f"by seed, {found.unit}: {shown}",
        f"mean {found.values_S.mean():+.{1 if found.shares else 3}f}, standard deviation between seeds {found.shown(spread.estimate)} "
        f"({confidence:.0%} interval {found.shown(spread.low)} to {found.shown(spread.high)})",
        "",
        *table(found, effect, spread.estimate, alpha),
        "",
        *verdict(found, effect, spread, power, alpha),
    ]


def table(found: Differences, effect: float, sd: float, alpha: float) -> list[str]:
    """Return the power of so many seeds for effects around the one asked for, a row an effect that can be."""
    header = f"power at level {alpha:g}" + "".join(f"{f'{seeds} seeds':>10}" for seeds in SEEDS)
    effects = [effect * multiple for multiple in MULTIPLES if effect * multiple <= found.most]
    rows = [
        f"{f'{size:g} {found.unit}':<{len(header) - 10 * len(SEEDS)}}"
        + "".join(f"{paired_power(size, sd, seeds, alpha):>10.0%}" for seeds in SEEDS)
        for size in effects
    ]
    floors = f"{'smallest p, signs':<{len(header) - 10 * len(SEEDS)}}" + "".join(f"{sign_flip_floor(seeds):>10.2g}" for seeds in SEEDS)
    return [header, *rows, floors]


def verdict(found: Differences, effect: float, spread: Interval, power: float, alpha: float) -> list[str]:
    """Return the seeds that the effect needs, how well that is known, and what the seeds in hand can show."""
    needed, low, high = (seeds_needed(effect, sd, power, alpha) for sd in (spread.estimate, spread.low, spread.high))
    seeds = len(found.seeds)
    said = [
        f"To see {effect:g} {found.unit} with a power of {power:.0%}: {_needed(needed, low, high)} by the interval of the deviation.",
        f"{seeds} seeds see {_visible(found, detectable_effect(spread.estimate, seeds, power, alpha))}.",
        f"A sign-flip p can lie below {alpha:g} from {fewest_for_sign_flip(alpha)} seeds on, however large the effect.",
    ]
    if high > TOO_WIDE * low:
        said.append(f"{seeds} seeds in hand are too few to say more: {_width(low, high)}.")
    if found.shares and effect < SMALL:
        said.append(f"Effects are in points of 100: a share of {effect:g} would be --effect {100 * effect:g}.")
    return said


def _visible(found: Differences, effect: float) -> str:
    if effect > found.most:
        return f"nothing with that power, since a {found.kind} cannot exceed {found.most:g} points"
    return f"{found.shown(effect)} {found.unit} or more with that power"


def _needed(seeds: float, low: float, high: float) -> str:
    between = f"{_count(low)} to {_count(high)}" if low != high else _count(low)
    return f"{_count(seeds)} seeds; {between}"


def _count(seeds: float) -> str:
    return f"over {MOST_SEEDS:,}" if math.isinf(seeds) else f"{seeds:,.0f}"


def _width(low: float, high: float) -> str:
    if math.isinf(high):
        return f"that interval has no upper end below {MOST_SEEDS:,}"
    return f"the ends of that interval lie a factor of {high / low:,.0f} apart"


def main(arguments: list[str] | None = None) -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m glint.power", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", help="name of a run in reports/, or a folder of tables")
    parser.add_argument("--study", help="study; else the first of the tables")
    parser.add_argument("--arm", help="arm; else the base arm of an rl study, or the first planned comparison")
    parser.add_argument("--metric", help="outcome; else the primary one of this kind of study")
    parser.add_argument("--effect", type=float, help="effect to see, in points of a share (else 10) or in nats of a loss (else 0.05)")
    parser.add_argument("--power", type=float, default=0.8, help="chance to see it, above alpha (0.8)")
    parser.add_argument("--alpha", type=float, default=0.05, help="level of the two-sided test (0.05)")
    given = parser.parse_args(arguments)
    with failing_in_one_sentence():
        if not 0 < given.alpha < given.power < 1:
            raise ValueError(f"--alpha {given.alpha:g} and --power {given.power:g} must lie between 0 and 1, the power above the level")
        if given.effect is not None and not 0 < given.effect < math.inf:
            raise ValueError(f"--effect {given.effect:g} must be a size above 0")
        found = differences(find_tables(given.run), given.study, given.arm, given.metric)
        effect = DEFAULT_EFFECT[found.shares] if given.effect is None else given.effect
        text = "\n".join(lines(found, effect, given.power, given.alpha))
    with ending_with_its_reader():
        print(text)


if __name__ == "__main__":
    main()
