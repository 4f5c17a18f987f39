"""The figures of the pretraining studies: arms compared seed by seed, and what a training by blocks forgets."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from glint.report import marks
from glint.report.contrasts import Trajectories, planned
from glint.report.results import Results
from glint.report.svg import FIRST, INK, PUBLISHED, SECOND, THIRD, drawing, to_svg
from glint.report.wording import points

NONE = "This run has no pretraining study"


def contrasts(results: Results) -> str:
    """Draw the difference of each planned comparison on held-out structures, every metric, with its interval over paired seeds."""
    rows = planned(results)
    rows = rows[rows["metric"] == "byte_accuracy"]
    published = results.published_differences()
    with drawing("contrasts", 1.4 + 0.5 * len(rows)) as (figure, (axes,)):
        for place, row in enumerate(rows.to_dict("records")):
            marks.interval(axes, place, row)
            key = f"{row['contrast']}.{row['step']}"
            if key in published:
                axes.plot(published[key], place, **PUBLISHED)
        marks.rows(axes, [f"{row['contrast']},\nstep {row['step']}" for _, row in rows.iterrows()])
        axes.axvline(0, color=INK, lw=0.8)
        axes.set_xlabel("difference in bytes predicted, held-out structures")
        axes.xaxis.set_major_formatter(PercentFormatter(1))
        handles = [axes.plot([], [], "o-", color=FIRST, label="ours")[0]]
        if published:
            handles.append(axes.plot([], [], **PUBLISHED, label="published figure")[0])
        figure.legend(handles=handles, loc="outside upper center", ncols=2)
        text = "; ".join(f"{row['contrast']} at step {row['step']}: {points(row['estimate'])}" for _, row in rows.iterrows()) or NONE
        return to_svg(figure, "contrasts", "Arms of the pretraining studies, compared seed by seed", f"{text}.")


def forgetting(results: Results) -> str:
    """Draw the bytes predicted of groups of trained structures over time: trained block after block, and interleaved."""
    found = Trajectories.of(results)
    arms = found.arms if found else ["no pretraining study"]
    with drawing("forgetting", 1.6 + 2.3 * len(arms), rows=len(arms)) as (figure, panels):
        for axes, arm in zip(panels, arms, strict=True):
            if found:
                _trajectories(axes, found.lines(arm), found.held_out(arm))
                axes.axhline(found.bigram, color=INK, ls=":", lw=1, label="from the byte before alone")
            axes.set(title=f"arm {arm}", ylabel="bytes predicted", ylim=(0, found.highest * 1.1 if found else 1))
            axes.yaxis.set_major_formatter(PercentFormatter(1))
        panels[-1].set_xlabel("optimiser step")
        if found:
            figure.legend(handles=panels[0].get_legend_handles_labels()[0], loc="outside upper center", ncols=2, fontsize=9)
        text = f"{found.summary}." if found else f"{NONE}."
        return to_svg(figure, "forgetting", "Training block by block: what is left of early blocks", text)


def _trajectories(axes: Axes, lines: list[pd.Series], held_out: pd.Series) -> None:
    """Draw a line a group of structures (index: step), the first and the last of the order set off."""
    first, *between, last = lines
    for line in between:
        axes.plot(line, color=THIRD, lw=0.8, alpha=0.6)
    axes.plot([], [], color=THIRD, lw=0.8, alpha=0.6, label="groups between")
    axes.plot(first, color=SECOND, marker="o", ms=4, label="first group")
    axes.plot(last, color=FIRST, marker="s", ms=4, label="last group")
    axes.plot(held_out, color=INK, ls="--", lw=1.2, label="held-out structures")
