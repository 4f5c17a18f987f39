"""The figures of the architecture studies: losses as training goes on, all comparisons, and their losses source by source."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from glint.config.heldout import ALL
from glint.report.architecture import BASES, VERDICTS, arms, compared, overall
from glint.report.marks import arm_legend, interval, legend_height, log_ticks, rows, seed_lines, shared_legend, styles_of
from glint.report.results import Results
from glint.report.svg import FIRST, INK, SECOND, THIRD, drawing, to_svg
from glint.report.wording import nats, thousandths, whole

NONE = "This run has 0 architecture studies."
COLOURS = {"pays": FIRST, "costs": SECOND, "undecided": THIRD}
HOLLOW = {"mfc": "none", "mew": 1.6}
MARKS: dict[str, dict[str, Any]] = dict(
    zip(BASES.values(), ({"marker": "o"}, {"marker": "s"} | HOLLOW, {"marker": "s"}, {"marker": "v"} | HOLLOW), strict=True)
)
"""How an estimate is drawn, by what was equal between the arms."""
AXES = {"loss": "held-out loss,\nnats a token\n(less is better)", "dev": "dev tasks solved,\npoints\n(more is better)"}
DARKEST = 0.5
"""Opacity of the cell that is farthest from zero; letters stay readable on it."""


def losses(results: Results) -> str:
    """Draw the held-out loss of every arm over steps and over training FLOPs: every seed and the mean, two panels a study."""
    names, styles, ends = results.studies("architecture"), styles_of(arms(results)), []
    count = 2 * max(1, len(names))
    with drawing("losses", legend_height(list(styles)) + 2.4 * count, rows=count) as (figure, panels):
        for study, *pair in zip(names, panels[::2], panels[1::2], strict=False):
            table = results.of_study("architecture", study)
            ends += _losses(pair, table[table["source"] == ALL], styles)
            pair[0].set_title(f"study {study}")
        arm_legend(figure, panels, list(styles))
        return to_svg(figure, "losses", "Held-out loss, over steps and over training FLOPs", f"{'; '.join(ends)}." if ends else NONE)


def _losses(panels: list[Axes], table: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> list[str]:
    """Draw the arms of one study; return where each ends, in words."""
    ends = []
    for arm, own in table.groupby("arm", sort=False):
        lines = own.pivot(index="step", columns="seed", values="loss")
        flops = own.groupby("step")["flops"].mean() / 1e12
        seed_lines(panels[0], lines, str(arm), **styles[str(arm)])
        seed_lines(panels[1], lines.set_axis(flops.loc[lines.index]), str(arm), **styles[str(arm)])
        mean = lines.dropna().mean(axis=1)
        ends.append(f"arm {arm}: {nats(mean.iloc[-1])} nats a token at step {whole(mean.index[-1])}")
    for axes, label in zip(panels, ("optimiser step", "training FLOPs, 10¹²"), strict=True):
        axes.set(xlabel=label, ylabel="held-out loss, nats a token", yscale="log")
        axes.locator_params(axis="x", nbins=6)
        log_ticks(axes)
    return ends


def forest(results: Results) -> str:
    """Draw every comparison over all sources, in loss and in dev tasks solved: shaped by what was equal, coloured by verdict."""
    names = results.studies("architecture")
    found = [[overall(results, study, outcome) for outcome in AXES] for study in names]
    heights = [1.1 + 0.3 * len(losses) for losses, _ in found] or [1.0]
    with drawing("forest", 1 + sum(heights), rows=len(heights), columns=2, heights=heights) as (figure, panels):
        for study, tables, *both in zip(names, found, panels[::2], panels[1::2], strict=False):
            for axes, label, table, scale in zip(both, AXES.values(), tables, (1, 100), strict=True):
                _forest(axes, table, scale)
                axes.set_xlabel(label)
            both[0].set_title(f"study {study}")
            both[1].set_yticklabels([])
        if found:
            _forest_legend(figure, panels, {basis for tables in found for basis in tables[0]["basis"]})
        text = ". ".join(_summary(study, losses) for study, (losses, _) in zip(names, found, strict=True))
        return to_svg(figure, "forest", "Arms of the architecture studies, compared seed by seed", f"{text}." if text else NONE)


def _forest(axes: Axes, table: pd.DataFrame, scale: float) -> None:
    """Draw one row a comparison, its numbers multiplied by `scale`."""
    rows(axes, table["name"].tolist())
    for place, row in enumerate(table.to_dict("records")):
        ends: dict[str, float] = {name: row[name] * scale for name in ("estimate", "low", "high")}
        interval(axes, place, ends, COLOURS[row["verdict"]], **MARKS[row["basis"]])
    axes.axvline(0, color=INK, lw=0.8)


def _forest_legend(figure: Figure, panels: list[Axes], bases: set[str]) -> None:
    """Explain the colours, and the shapes of those `bases` that are drawn."""
    for verdict, colour in COLOURS.items():
        panels[0].plot([], [], color=colour, lw=2.2, label=VERDICTS[verdict])
    for basis, style in MARKS.items():
        if basis in bases:
            panels[0].plot([], [], color=INK, ls="none", label=f"at {basis}", **style)
    shared_legend(figure, panels, columns=2)


def _summary(study: str, table: pd.DataFrame) -> str:
    said = "; ".join(
        f"{row['name']} ({row['pair']}, at {row['basis']}) {nats(row['estimate'], signed=True)}, {VERDICTS[row['verdict']]}"
        for row in table.to_dict("records")
    )
    return f"Study {study}, difference in held-out loss, nats a token: {said}"


def sources(results: Results) -> str:
    """Draw the difference in loss of every comparison in every source as a table of numbers, shaded by size and side, a panel a study."""
    tables = {study: compared(results, study) for study in results.studies("architecture")}
    heights = [1.3 + 0.32 * table["name"].nunique() for table in tables.values()] or [1.0]
    with drawing("sources", 0.3 + sum(heights), rows=len(heights), heights=heights) as (figure, panels):
        for axes, (study, table) in zip(panels, tables.items(), strict=False):
            _cells(axes, table)
            axes.set_title(f"study {study}")
        text = "; ".join(_extremes(study, table) for study, table in tables.items())
        return to_svg(figure, "sources", "Difference in held-out loss, source by source", f"{text}." if text else NONE)


def _cells(axes: Axes, table: pd.DataFrame) -> None:
    """Draw one row a comparison and one column a source; a frame where the interval excludes zero."""
    places = {name: place for place, name in enumerate(table["name"].unique())}
    columns = {source: place for place, source in enumerate(table["source"].unique())}
    rows(axes, list(places))
    largest = table["estimate"].abs().max() or 1
    for cell in table.to_dict("records"):
        x, y, value = columns[cell["source"]], places[cell["name"]], cell["estimate"]
        colour, opacity = SECOND if value > 0 else FIRST, DARKEST * np.sqrt(abs(value) / largest)
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, lw=0, facecolor=colour, alpha=opacity))
        if cell["verdict"] != "undecided":
            axes.add_patch(Rectangle((x - 0.44, y - 0.42), 0.88, 0.84, fill=False, edgecolor=INK, lw=1))
        axes.text(x, y, thousandths(value), ha="center", va="center", fontsize=9)
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", rotation_mode="anchor")
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(places) - 0.5, -0.5))
    axes.grid(visible=False)
    axes.tick_params(axis="x", length=0)


def _extremes(study: str, table: pd.DataFrame) -> str:
    """Return the comparison and source in which the first arm gains most, and that in which it loses most, in words."""
    ordered = table.sort_values("estimate", kind="stable")
    said = (f"{nats(row['estimate'], signed=True)} ({row['name']}, {row['source']})" for _, row in ordered.iloc[[0, -1]].iterrows())
    return f"study {study}: from {' to '.join(said)} nats a token"
