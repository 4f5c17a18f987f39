"""The rl studies beside the front one, as tables and a figure of the report: each arm against the base arm, seed by seed."""

from dataclasses import dataclass
from typing import Any, Self

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from glint.report import marks
from glint.report.results import Results
from glint.report.svg import FIRST, INK, PUBLISHED, drawing, to_svg
from glint.report.tables import Table
from glint.report.wording import MINUS, count, share, whole

METRIC = "greedy_pass1"


@dataclass(frozen=True)
class Solved:
    """What the greedy answers of every arm of one study solve after RL: target families, headline stop rule."""

    study: str
    arms: tuple[str, ...]
    """In reporting order, the base first."""
    counts: pd.DataFrame
    """Tasks solved: a row a seed, a column an arm."""
    of: int
    rows: pd.DataFrame
    """The comparisons with the base, by arm and seed."""

    @classmethod
    def of_study(cls, results: Results, study: str) -> Self:
        """Read the study's tables."""
        table, compared = results.read("seeds"), results.read("comparisons")
        scope = (table["scope"] == "targets") & (table["metric"] == METRIC)
        stop = results.headline_stop[study]
        front = table[(table["study"] == study) & scope & (table["stop"] == stop)]
        counts = front.pivot(index="seed", columns="arm", values="after")
        rows = compared[(compared["study"] == study) & (compared["stop"] == stop)].set_index(["arm", "seed"])
        return cls(study, tuple(front["arm"].unique()), counts, int(front["of"].iloc[0]), rows)

    @property
    def needed(self) -> int:
        """The fewest tasks, solved by one of two arms alone, that a test could call significant."""
        return int(self.rows["needed"].max())

    @property
    def smallest_p(self) -> float:
        """The smallest corrected p of all arms and seeds."""
        return float(self.rows["p_holm"].min())


def others(results: Results) -> list[str]:
    """Return the rl studies that do not stand in front, in the order of the tables."""
    return [str(name) for name in results.estimates["study"].unique() if name != results.study]


def against_base(results: Results, solved: Solved) -> Table:
    """Return, an arm, the tasks solved in each seed, what it solves and the base does not, and what its training met."""
    base, seeds = solved.arms[0], list(solved.counts.index)
    training = results.read("rl").query("study == @solved.study").groupby("arm")[["exact", "rollouts", "updates", "groups"]].mean()
    rows = []
    for arm in solved.arms:
        cells = [_cell(solved, arm, seed) for seed in seeds]
        met: Any = training.loc[arm]
        rows.append((arm, *cells, count(met["exact"], met["rollouts"]), count(met["updates"], met["groups"])))
    header = ("arm", *(f"seed {seed}" for seed in seeds), "training samples that pass, mean of seeds", "updates of groups, mean of seeds")
    return Table(f"Tasks solved greedily after RL, of {solved.of}, each arm against {base}", header, rows)


def _cell(solved: Solved, arm: str, seed: int) -> str:
    number: Any = solved.counts.loc[seed, arm]
    if pd.isna(number):
        return "no result"
    key: Any = (arm, seed)
    if key not in solved.rows.index:
        return whole(number)
    row: Any = solved.rows.loc[key]
    return f"{whole(number)} (+{whole(row['gains'])} {MINUS}{whole(row['losses'])}), p {row['p_holm']:.2g}"


def arms(results: Results) -> str:
    """Draw the share of tasks that each arm of the other rl studies solves: every seed, the mean and its interval, the published figure."""
    studies = [Solved.of_study(results, study) for study in others(results)]
    heights = [0.9 + 0.36 * len(solved.arms) for solved in studies] or [1.0]
    with drawing("arms", 1.2 + sum(heights), rows=len(heights), heights=heights) as (figure, panels):
        marked = [_panel(axes, results, solved) for axes, solved in zip(panels, studies, strict=False)]
        if studies:
            handles = [
                panels[0].plot([], [], "o-", color=FIRST, label="mean of seeds")[0],
                panels[0].plot([], [], "o", color=INK, mfc="none", ms=4, label="one seed")[0],
                *([panels[0].plot([], [], **PUBLISHED, label="published figure")[0]] if any(marked) else []),
            ]
            figure.legend(handles=handles, loc="outside upper center", ncols=3)
        text = "; ".join(f"{solved.study}: {_summary(solved)}" for solved in studies) or "This run has one rl study"
        return to_svg(figure, "arms", "Arms of the other RL studies: tasks solved greedily after RL", f"{text}.")


def _panel(axes: Axes, results: Results, solved: Solved) -> bool:
    """Draw one study, a row an arm; return whether a published figure stands there."""
    published = results.published(f"{solved.study}.dev_solved.")
    for row, arm in enumerate(solved.arms):
        estimate = results.estimate("targets", METRIC, "after", study=solved.study, arm=arm)
        axes.plot(solved.counts[arm] / solved.of, [row + 0.22] * len(solved.counts), "o", color=INK, mfc="none", ms=4)
        marks.interval(axes, row, estimate)
        if arm in published:
            axes.plot(published[arm], row, **PUBLISHED)
    marks.rows(axes, solved.arms)
    axes.set_xlim(-0.03, 1.03)
    axes.set(title=f"study {solved.study}", xlabel=f"share of {solved.of} tasks solved")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    return bool(published)


def _summary(solved: Solved) -> str:
    return ", ".join(f"{arm} {share(solved.counts[arm].mean() / solved.of)}" for arm in solved.arms)
