"""Two runs side by side: `python -m glint.compare RUN_A RUN_B`, names below `reports/` or folders of tables.

What differs in their configs, and what in their results: each estimate of both with its interval, and the difference, B less A. Where the
runs have two seeds or more in common, it is taken seed by seed (Student's t over paired seeds), else between means (Welch's t).
"""

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd

from glint.files import read_json
from glint.report.seed_values import PRIMARY, QUANTITY, Quantity, find_tables, points, read, seed_values
from glint.statistics.intervals import TASKS_WITHIN_FAMILIES, Interval, student, welch
from glint.terminal import ending_with_its_reader, failing_in_one_sentence

CONFIDENCE = 0.95
NO_WIDTH = 1e-9
"""An interval so narrow comes from the rounding of shares."""
UNBOUNDED = (
    "Student's intervals over few seeds are wide and know no bounds: where that of a share passes 0 or 100, read it as ending there."
)
ESTIMATED = [name for name in QUANTITY if name != "step"]
PAIRED, APART = "paired by seed", "seeds of their own"


class Absent:
    """Stands for a key that one of two configs lacks."""


ABSENT = Absent()


@dataclass(frozen=True)
class Run:
    """The tables of one run."""

    name: str
    config: dict[str, Any] | None
    """The resolved config without the run's name; None where an older version wrote the tables."""
    digest: str
    """Of the config, the run's name included."""
    values: pd.DataFrame
    """A row a quantity and seed."""
    estimates: dict[tuple[Any, ...], Interval]
    """The intervals that the report gives, by the columns `ESTIMATED`."""

    @classmethod
    def read(cls, given: str) -> Self:
        """Read the tables in the folder `given`, or of the run of that name; raises ValueError where there are none."""
        folder = find_tables(given)
        values, config = seed_values(folder), folder / "config.json"
        whole = read_json(config) if config.exists() else None
        if whole is not None and not isinstance(whole, dict):
            raise ValueError(f"{config} is not the config of a run")
        own = None if whole is None else {key: value for key, value in whole.items() if key != "run"}
        return cls(given, own, read_json(folder / "provenance.json")["config"], values, _estimates(folder))


def _estimates(folder: Path) -> dict[tuple[Any, ...], Interval]:
    table = read(folder, "estimates")
    narrow = table[table["method"] == TASKS_WITHIN_FAMILIES]
    keys, numbers = (narrow[columns].itertuples(index=False, name=None) for columns in (ESTIMATED, ["estimate", "low", "high"]))
    return {key: Interval(*three) for key, three in zip(keys, numbers, strict=True)}


@dataclass(frozen=True)
class Compared:
    """One quantity of two runs."""

    of: Quantity
    one: Interval
    other: Interval
    difference: Interval
    method: str
    seeds: tuple[int, int]
    """Of each run, those behind the difference."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of 0; one without a width decides nothing, as few seeds easily agree."""
        width = self.difference.high - self.difference.low
        return width > NO_WIDTH and (self.difference.low > 0 or self.difference.high < 0)


def config_differences(one: Any, other: Any, key: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield each key, dotted, at which two configs differ, with both values; a section that one lacks is one key."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from config_differences(one.get(name, ABSENT), other.get(name, ABSENT), f"{key}.{name}".removeprefix("."))
    elif one != other:
        yield key, _config_value(one), _config_value(other)


def _config_value(value: Any) -> str:
    if value is ABSENT:
        return "absent"
    return "present" if isinstance(value, dict) else json.dumps(value)


def by_quantity(run: Run) -> dict[Quantity, pd.Series]:
    """Return the values of a run by seed, for each quantity in the order of its tables."""
    groups: Any = run.values.set_index("seed").groupby(QUANTITY, sort=False)["value"]
    return {Quantity(*key): values for key, values in groups}


def compared(one: Run, other: Run, *, everything: bool = True) -> list[Compared]:
    """Return the quantities that both runs have, in the order of the first; unless `everything`, those of the `headline`."""
    ours, theirs = by_quantity(one), by_quantity(other)
    shared = [of for of in ours if of in theirs]
    tables = dict(zip(one.values["study"], one.values["table"], strict=True))
    return [_compare(of, ours[of], theirs[of], one, other) for of in (shared if everything else headline(shared, tables))]


def headline(shared: list[Quantity], tables: dict[str, str]) -> list[Quantity]:
    """Return the quantities of each study's first scope and stop rule, at the last step that both runs have of an arm."""
    stops: dict[str, str] = {}
    last: dict[tuple[str, str], int] = {}
    for of in shared:
        stops.setdefault(of.study, of.stop)
        last[of[:2]] = max(last.get(of[:2], 0), of.step)
    return [of for of in shared if (of.scope, of.stop, of.step) == (PRIMARY[tables[of.study]]["scope"], stops[of.study], last[of[:2]])]


def _compare(of: Quantity, ours: pd.Series, theirs: pd.Series, one: Run, other: Run) -> Compared:
    both = sorted(set(ours.index) & set(theirs.index))
    if len(both) > 1:
        difference, method, seeds = student(theirs[both] - ours[both], CONFIDENCE), PAIRED, (len(both), len(both))
    else:
        difference, method, seeds = welch(theirs, ours, CONFIDENCE), APART, (len(ours), len(theirs))
    return Compared(of, _own(of, ours, one), _own(of, theirs, other), difference, method, seeds)


def _own(of: Quantity, values: pd.Series, run: Run) -> Interval:
    """Return a run's own interval: the report's where it gives one at `CONFIDENCE`, else Student's t over its seeds."""
    level = CONFIDENCE if run.config is None else run.config["studies"][of.study]["analysis"]["confidence"]
    given = run.estimates.get(of[: len(ESTIMATED)]) if level == CONFIDENCE else None
    return given or student(values, CONFIDENCE)


def report(one: Run, other: Run, *, everything: bool) -> list[str]:
    """Return what is printed."""
    same = one.values.equals(other.values)
    if same and one.config == other.config and (one.config is not None or one.digest == other.digest):
        return [f"{one.name} and {other.name} are equal: the same config, and the same {len(one.values):,} results of single seeds."]
    results = ["The results of all seeds are the same."] if same else _result_lines(compared(one, other, everything=everything), everything)
    return [f"A: {one.name}", f"B: {other.name}", "", *_config_lines(one, other), "", *results, *_only_in_one(one, other)]


def _config_lines(one: Run, other: Run) -> list[str]:
    if one.config is None or other.config is None:
        lacking = [run.name for run in (one, other) if run.config is None]
        says = f"{' and '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no config.json"
        return [f"Config: {says}, as older versions left it; digests {one.digest} and {other.digest}."]
    found = list(config_differences(one.config, other.config))
    if not found:
        return ["Config: the same."]
    return ["Config, where it differs, A and B:", *(f"  {key}: {ours} | {theirs}" for key, ours, theirs in found)]


def _result_lines(rows: list[Compared], everything: bool) -> list[str]:
    if not rows:
        return ["Results: the runs have no study, arm and metric in common."]
    lines = [
        f"Results, A, B and B less A, each with its {CONFIDENCE:.0%} interval; shares in per cent, their differences in points.",
        *([UNBOUNDED] if any(map(_passes_the_ends, rows)) else []),
        "A and B rest on all seeds of their run, a difference that is paired by seed on those that both have:",
    ]
    for heading in dict.fromkeys(map(_heading, rows)):
        lines += [heading, *(_line(row) for row in rows if _heading(row) == heading)]
    marked, tested = sum(row.excludes_zero for row in rows), sum(row.difference.high - row.difference.low > NO_WIDTH for row in rows)
    if not tested:
        return [*lines, "", "No difference has an interval with a width: the rows of both runs are equal, or rest on one seed."]
    return [
        *lines,
        "",
        f"{marked} of {tested} differences with an interval exclude 0 (marked *), each at {CONFIDENCE:.0%} for itself; "
        f"where nothing differs, about {(1 - CONFIDENCE) * tested:.1f} would. They speak of more seeds on the tasks of these runs.",
        *([] if everything else ["More with --all: other scopes, stop rules and steps."]),
    ]


def _passes_the_ends(row: Compared) -> bool:
    """Return whether an interval of a share, not of a gain, ends outside of [0, 1]."""
    return points(row.of.metric) and row.of.phase != "gain" and any(value.low < 0 or value.high > 1 for value in (row.one, row.other))


def _heading(row: Compared) -> str:
    seeds = f"{row.seeds[0]}" if row.method == PAIRED else f"{row.seeds[0]} and {row.seeds[1]}"
    return f"study {row.of.study}, arm {row.of.arm} ({seeds} seeds, {row.method})"


def _line(row: Compared) -> str:
    of, shares = row.of, points(row.of.metric)
    words = [of.metric, of.phase, of.split, of.stop, of.scope, f"step {of.step}" if of.step else ""]
    label = " ".join(word for word in words if word)
    cells = (_interval(row.one, shares, ""), _interval(row.other, shares, ""), _interval(row.difference, shares, "+"))
    return f"  {label:<52}" + "".join(f"{cell:>26}" for cell in cells) + (" *" if row.excludes_zero else "")


def _interval(value: Interval, shares: bool, sign: str) -> str:
    digits = f"{sign}.1f" if shares else f"{sign}.3f"
    estimate, low, high = (format(number * (100 if shares else 1), digits) for number in (value.estimate, value.low, value.high))
    return estimate if math.isnan(value.low) else f"{estimate} [{low}, {high}]"


def _only_in_one(one: Run, other: Run) -> list[str]:
    """Return a line for each run that has arms which the other lacks."""
    arms = [dict.fromkeys(run.values[["study", "arm"]].itertuples(index=False, name=None)) for run in (one, other)]
    lines = []
    for name, own, others in (("A", *arms), ("B", *arms[::-1])):
        alone = [f"{study}, {arm}" for study, arm in own if (study, arm) not in others]
        lines += [f"Only in {name}: {'; '.join(alone)}."] if alone else []
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Compare the runs that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m glint.compare", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("one", metavar="RUN_A", help="name of a run in reports/, or a folder of tables")
    parser.add_argument("other", metavar="RUN_B", help="the run whose differences from RUN_A are told")
    parser.add_argument("--all", action="store_true", help="all scopes, stop rules and steps, not only the first scope and the last step")
    given = parser.parse_args(arguments)
    with failing_in_one_sentence():
        text = "\n".join(report(Run.read(given.one), Run.read(given.other), everything=given.all))
    with ending_with_its_reader():
        print(text)


if __name__ == "__main__":
    main()
