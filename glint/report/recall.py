"""The recall studies as words, a table and a figure of the report: a name seen many tokens before, is it still known."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, PercentFormatter

from glint.report.architecture import arms, seeds
from glint.report.marks import arm_legend, legend_height, seed_lines, styles_of
from glint.report.results import Results
from glint.report.svg import INK, drawing, to_svg
from glint.report.tables import Table
from glint.report.wording import interval, p_value, points, share, whole
from glint.statistics.intervals import OVER_SEEDS

NONE = "This run has 0 recall studies."
ALL = "all"
"""The distance under which a comparison over all of them stands."""
KEY = ["contrast", "step", "distance"]


def planned(results: Results, study: str) -> pd.DataFrame:
    """Return the planned comparisons of one study: the interval that draws texts too, and `seeds_low`, `seeds_high` over seeds alone.

    `pair` names the arms and the step, `distance` is text, `all` or a number.
    """
    table = results.of_study("recall_contrasts", study).assign(distance=lambda rows: rows["distance"].astype(str))
    over_seeds = table["method"] == OVER_SEEDS
    ends = table.loc[over_seeds, [*KEY, "low", "high"]].rename(columns={"low": "seeds_low", "high": "seeds_high"})
    rows = table[~over_seeds].merge(ends, on=KEY)
    return rows.assign(pair=rows["arm"] + " against " + rows["against"] + ", step " + rows["step"].map(whole))


def verdicts(results: Results, study: str) -> list[tuple[str, str]]:
    """Return, a planned comparison, the two arms, and in words how they differ over all distances and at which one recalls more.

    An arm recalls more where both intervals say so: with few seeds the one that draws texts too is short (docs/statistics.md).
    """
    return [(str(pair), _found(own)) for pair, own in planned(results, study).groupby("pair", sort=False)]


def _found(rows: pd.DataFrame) -> str:
    """Return the difference over all distances, those at which each arm is better by both intervals, and those that decide nothing."""
    whole_text, each = rows[rows["distance"] == ALL], rows[rows["distance"] != ALL]
    arm, against = rows[["arm", "against"]].iloc[0]
    parts = [f"over all distances {_difference(row)}, {seeds(row['n_seeds'])}" for row in whole_text.to_dict("records")]
    above = (each["low"] > 0) & (each["seeds_low"] > 0)
    below = (each["high"] < 0) & (each["seeds_high"] < 0)
    for name, won in ((arm, each[above]), (against, each[below])):
        if len(won):
            widest = won.sort_values("estimate", key=abs).iloc[-1]
            parts.append(f"{name} recalls more at {_distances(won)} tokens (widest: {_difference(widest)} at {_distance(widest)})")
    undecided = each[~(above | below)]
    return "; ".join([*parts, *([f"undecided at {_distances(undecided)} tokens"] if len(undecided) else [])])


def _difference(row: Any) -> str:
    """Return a difference with both intervals, seeds and texts, then seeds; of one seed there is none."""
    both, seeds_alone = (interval(row[f"{which}low"], row[f"{which}high"], signed=True) for which in ("", "seeds_"))
    return f"{points(row['estimate'])} {both}" + ("" if both == seeds_alone else f" and {seeds_alone}")


def _distances(rows: pd.DataFrame) -> str:
    return ", ".join(_distance(row) for row in rows.to_dict("records"))


def _distance(row: Any) -> str:
    return whole(int(row["distance"]))


def comparisons(results: Results, study: str) -> Table:
    """Return every planned comparison, over all distances and at each."""
    rows = [
        (
            f"{row['pair']}\n{'all distances' if row['distance'] == ALL else _distance(row) + ' tokens'}",
            share(row["arm_mean"]),
            share(row["against_mean"]),
            points(row["estimate"]),
            interval(row["low"], row["high"], signed=True),
            interval(row["seeds_low"], row["seeds_high"], signed=True),
            f"{whole(row['seeds_won'])} of {whole(row['n_seeds'])}",
            p_value(row["p"], row["p_floor"]),
        )
        for row in planned(results, study).to_dict("records")
    ]
    header = ("comparison", "first arm", "second arm", "difference", "interval, seeds and texts", "interval, paired seeds", "seeds won")
    return Table("Names recalled, arms compared seed by seed", (*header, "sign-flip p"), rows)


def recall(results: Results) -> str:
    """Draw the share of names recalled over the distance, at the last step of each arm: every seed and the mean, a panel a study."""
    names, styles, ends = results.studies("recall"), styles_of(arms(results)), []
    with drawing("recall", legend_height(list(styles)) + 2.6 * max(1, len(names)), rows=max(1, len(names))) as (figure, panels):
        for axes, study in zip(panels, names, strict=False):
            ends += [f"{study}, {text}" for text in _panel(axes, results.of_study("recall", study).dropna(subset=["step"]), styles)]
            axes.set(title=f"study {study}", ylabel="names recalled", ylim=(-0.04, 1.04))
        panels[-1].set_xlabel("distance of the name, tokens")
        arm_legend(figure, panels, list(styles))
        return to_svg(figure, "recall", "Names recalled, by their distance", f"{'; '.join(ends)}." if ends else NONE)


def _panel(axes: Axes, table: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> list[str]:
    """Draw the arms of one study; return what each recalls at the longest distance, in words."""
    ends = []
    for arm, own in table.assign(share=table["right"] / table["of"]).groupby("arm", sort=False):
        last = own[own["step"] == own["step"].max()]
        lines = last.pivot(index="distance", columns="seed", values="share")
        seed_lines(axes, lines, str(arm), **styles[str(arm)])
        ends.append(f"arm {arm}: {share(lines.iloc[-1].mean())} at {whole(lines.index[-1])} tokens")
    chance = table.groupby("distance")["chance"].mean()
    axes.plot(chance, color=INK, ls=":", lw=1, label="chance")
    axes.set_xscale("log", base=2)
    axes.set_xticks(chance.index, [whole(distance) for distance in chance.index])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    return ends
