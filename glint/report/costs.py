"""What the models of an architecture study cost as the context grows, as a table and a figure of the report."""

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from glint.report.architecture import arms
from glint.report.marks import arm_legend, legend_height, log_ticks, styles_of
from glint.report.results import Results
from glint.report.svg import drawing, to_svg
from glint.report.tables import Table
from glint.report.wording import milliseconds, whole

NONE = "This run has 0 studies that measure costs."
PANELS = {
    "decode_seconds": ("decoding,\nCPU ms a token", 1e3),
    "peak_mib": ("peak memory, MiB", 1),
    "cache_bytes": ("decode cache, KiB", 1 / 1024),
}
"""Column of costs.csv to the label of its axis and the factor to its unit."""
GROWING: dict[str, Callable[[float], str]] = {
    "context": whole,
    **dict.fromkeys(("decode_seconds", "prefill_seconds", "train_seconds"), milliseconds),
    **dict.fromkeys(("peak_mib", "cache_bytes"), "{:,.0f}".format),
}
"""Column of costs.csv to how it is written in the table."""


def growth(results: Results, study: str) -> Table:
    """Return what each arm costs at the shortest and at the longest context."""
    table = results.of_study("costs", study)
    rows = [_growth(str(arm), own.sort_values("context")) for arm, own in table.groupby("arm", sort=False)]
    header = ("arm", "context, tokens", *(f"{name}, CPU ms a token" for name in ("decoding", "reading", "training")), "peak memory, MiB")
    return Table(f"Costs in study {study}, from the shortest context to the longest", (*header, "decode cache, bytes"), rows)


def _growth(arm: str, rows: pd.DataFrame) -> tuple[str, ...]:
    return (arm, *(f"{say(rows[name].iloc[0])} → {say(rows[name].iloc[-1])}" for name, say in GROWING.items()))


def costs(results: Results) -> str:
    """Draw the time to decode a token, the memory and the cache over the context, both axes logarithmic, three panels a study."""
    names, styles = results.studies("costs"), styles_of(arms(results))
    count = len(PANELS) * max(1, len(names))
    with drawing("costs", legend_height(list(styles)) + 2.1 * count, rows=count) as (figure, panels):
        ends = []
        for place, study in enumerate(names):
            own = panels[len(PANELS) * place :]
            ends += [f"{study}, {text}" for text in _panels(own, results.of_study("costs", study), styles)]
            own[0].set_title(f"study {study}")
        panels[-1].set_xlabel("context, tokens")
        arm_legend(figure, panels, list(styles))
        text = f"{'; '.join(ends)}." if ends else NONE
        return to_svg(figure, "costs", "Decoding time, memory and cache over the context", text)


def _panels(panels: list[Axes], table: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> list[str]:
    """Draw the arms of one study; return how the decoding time grows, in words."""
    for axes, (column, (label, factor)) in zip(panels, PANELS.items(), strict=False):
        for arm, own in table.groupby("arm", sort=False):
            axes.plot(own["context"], own[column] * factor, ms=5, label=str(arm), **styles[str(arm)])
        contexts = sorted(table["context"].unique())
        axes.set(ylabel=label, xscale="log", yscale="log")
        axes.set_xticks(contexts, [whole(context) for context in contexts])
        axes.xaxis.set_minor_locator(NullLocator())
        log_ticks(axes)
    grown = table.sort_values("context").groupby("arm", sort=False)[["context", "decode_seconds"]].agg(["first", "last"])
    return [
        f"arm {arm}: {milliseconds(first)} ms a token at {whole(near)} tokens, {milliseconds(last)} at {whole(far)}"
        for arm, near, far, first, last in grown.itertuples(name=None)
    ]
