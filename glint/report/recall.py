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

NONE = "This run has 0 recall studies."


def verdicts(results: Results, study: str) -> list[tuple[str, str]]:
    """Return, a planned comparison, the two arms, and in words at which distances one recalls more."""
    table = results.of_study("recall_contrasts", study)
    pairs = table["arm"] + " against " + table["against"] + ", step " + table["step"].map(whole)
    return [(str(pair), _found(own)) for pair, own in table.groupby(pairs, sort=False)]


def _found(rows: pd.DataFrame) -> str:
    """Return the distances at which each arm is better by its interval, with the widest difference, and those that decide nothing."""
    parts = []
    for name, won in ((rows["arm"].iloc[0], rows[rows["low"] > 0]), (rows["against"].iloc[0], rows[rows["high"] < 0])):
        if len(won):
            widest = won.sort_values("estimate", key=abs).iloc[-1]
            ends = interval(widest["low"], widest["high"], signed=True)
            where = f"{points(widest['estimate'])} {ends} at {whole(widest['distance'])}, {seeds(widest['n_seeds'])}"
            parts.append(f"{name} recalls more at {_distances(won)} tokens (widest: {where})")
    open_ = rows[~((rows["low"] > 0) | (rows["high"] < 0))]
    return "; ".join([*parts, *([f"undecided at {_distances(open_)} tokens"] if len(open_) else [])])


def _distances(rows: pd.DataFrame) -> str:
    return ", ".join(whole(distance) for distance in rows["distance"])


def comparisons(results: Results, study: str) -> Table:
    """Return every planned comparison at every distance."""
    rows = [
        (
            f"{row['arm']} against {row['against']}, step {whole(row['step'])}, {whole(row['distance'])} tokens",
            share(row["arm_mean"]),
            share(row["against_mean"]),
            points(row["estimate"]),
            interval(row["low"], row["high"], signed=True),
            f"{whole(row['seeds_won'])} of {whole(row['n_seeds'])}",
            p_value(row["p"], row["p_floor"]),
        )
        for row in results.of_study("recall_contrasts", study).to_dict("records")
    ]
    header = ("comparison", "first arm", "second arm", "difference", "interval", "seeds won", "sign-flip p")
    return Table("Names recalled, arms compared seed by seed", header, rows)


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
