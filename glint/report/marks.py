"""What several figures draw: an interval with its estimate, the rows of a forest plot, a line a seed, a style an arm."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from glint.report.svg import FIFTH, FIRST, FOURTH, INK, SECOND, THIRD

STYLES: tuple[dict[str, Any], ...] = tuple(
    {"color": colour, "marker": marker, "ls": dashes}
    for colour, marker, dashes in zip(
        (FIRST, SECOND, INK, FOURTH, FIFTH, THIRD) * 2,
        "os^DvPXp*<>h",
        ("-", "-", "-", "--", "--", "--", "-.", "-.", "-.", ":", ":", ":"),
        strict=True,
    )
)
"""Styles of lines, told apart by marker and dashes as well as by colour."""
LONG_NAME = 15
"""Letters of an arm's name up to which three names stand side by side."""
DECADE = 10


def styles_of(arms: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the style of each arm, which is its own in every figure that is given the same arms."""
    return dict(zip(arms, cycle(STYLES), strict=False))


def interval(axes: Axes, y: float, row: Any, colour: str = FIRST, marker: str = "o", **style: Any) -> None:
    """Draw the `estimate` of a row of a table as a marker, and its interval from `low` to `high` as a bar."""
    axes.plot([row["low"], row["high"]], [y, y], color=colour, lw=2.2, solid_capstyle="butt")
    axes.plot(row["estimate"], y, marker, color=colour, **({"ms": 6} | style))


def rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label one row a category along y, the first on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def seed_lines(axes: Axes, table: pd.DataFrame, label: str, **style: Any) -> None:
    """Draw a thin line a seed, and the mean where every seed has a point; `table` has a row a place along x and a column a seed."""
    for seed in table:
        axes.plot(table[seed].dropna(), color=style["color"], lw=0.8, alpha=0.45)
    axes.plot(table.dropna().mean(axis=1), label=label, **({"ms": 5} | style))


def log_ticks(axes: Axes) -> None:
    """Label a logarithmic y axis with plain numbers: at one, two and five of each decade, and between where no more than one is shown."""
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low > DECADE else (1, 1.5, 2, 3, 4, 5, 7)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def shared_legend(figure: Figure, panels: Sequence[Axes], columns: int, **style: Any) -> None:
    """Put one legend above all panels, each label once; none where nothing is labelled."""
    handles = {handle.get_label(): handle for axes in panels for handle in axes.get_legend_handles_labels()[0]}
    if handles:
        figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=columns, **style)


def arm_legend(figure: Figure, panels: Sequence[Axes], arms: Sequence[str]) -> None:
    """Put the names of many arms above all panels, in as many columns as the longest leaves room for."""
    longest = max(map(len, arms), default=0)
    shared_legend(figure, panels, columns=3 if longest <= LONG_NAME else 2, fontsize=9)


def legend_height(arms: Sequence[str]) -> float:
    """Return the inches that the legend of so many arms takes."""
    return 0.5 + 0.08 * len(arms)
