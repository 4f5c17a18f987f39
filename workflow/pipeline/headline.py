"""The main numbers of a finished run, for the terminal."""

import csv
from collections.abc import Iterator
from pathlib import Path

from glint.config.tree import Config, resolve


def text(config: Config, reports: Path) -> str:
    """Return a line an arm with its primary outcome on the trained families, and where the report lies; empty before there are tables."""
    table = reports / "estimates.csv"
    if not table.exists():
        return ""
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    lines = [line for study in config.studies for line in _arms(config, study, rows)]
    return "\n".join([*lines, f"Report: {reports / 'report.html'}"])


def _arms(config: Config, study: str, rows: list[dict[str, str]]) -> Iterator[str]:
    metric = config.studies[study].analysis.metric
    for arm in config.studies[study].arms:
        stop = resolve(config, study, arm).evaluation.stops[0]
        wanted = {"study": study, "arm": arm, "metric": metric, "stop": stop, "scope": "targets"}
        found = {row["phase"]: row for row in rows if wanted.items() <= row.items()}
        before, after, gain = (found[phase] for phase in ("before", "after", "gain"))
        yield (
            f"{study}, {arm}: {metric} on the trained families {_share(before)} -> {_share(after)}, "
            f"gain {_share(gain, '+')} [{_share(gain, '+', 'low')}, {_share(gain, '+', 'high')}], {gain['n_seeds']} seeds"
        )


def _share(row: dict[str, str], sign: str = "", column: str = "estimate") -> str:
    return format(float(row[column]), f"{sign}.1%") if row[column] else "?"
