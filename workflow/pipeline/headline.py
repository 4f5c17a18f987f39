"""The main numbers of a finished run, for the terminal."""

import csv
from collections.abc import Iterator
from pathlib import Path

from glint.config.tree import Config, resolve

WITHIN_FAMILIES = "tasks within families"
"""How the method of the report's main intervals ends: seeds and tasks are drawn, the families are these."""
BESIDE = ("explorer.html", "slides.html", "model_card.md", "data_card.md", "share")
"""What a run makes for readers beside its report."""


def text(config: Config, reports: Path) -> str:
    """Return a line an arm (rl) or comparison (other kinds) with its primary outcome, and what was made; empty without the report."""
    if not (reports / "report.html").exists():
        return ""
    names = ("estimates", "contrasts", "vision_contrasts", "recall_contrasts", "architecture_contrasts")
    estimates, contrasts, vision, recall, architecture = (_rows(reports / f"{name}.csv") for name in names)
    arms = (line for study in config.rl_studies() for line in _arms(config, study, estimates))
    lines = [*arms, *_contrasts(contrasts), *_vision(vision), *_recall(recall), *_architecture(architecture)]
    return "\n".join([*lines, f"Report: {reports / 'report.html'}", *_beside(reports)])


def _beside(reports: Path) -> list[str]:
    made = [f"{name}/" if (reports / name).is_dir() else name for name in BESIDE if (reports / name).exists()]
    return [f"Beside it: {', '.join(made)}"] if made else []


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _contrasts(rows: list[dict[str, str]]) -> Iterator[str]:
    wanted = {"split": "held_out", "metric": "byte_accuracy"}
    for row in (row for row in rows if wanted.items() <= row.items() and row["method"].endswith("paired seeds")):
        yield (
            f"{row['study']}, {row['contrast']} at step {row['step']}: byte_accuracy on held-out structures, {row['arm']} "
            f"{_share(row, column='arm_mean')} against {row['against']} {_share(row, column='against_mean')}, "
            f"difference {_interval(row)}"
        )


def _vision(rows: list[dict[str, str]]) -> Iterator[str]:
    for row in (row for row in rows if row["metric"] == "accuracy" and row["method"].endswith("seeds x images")):
        yield (
            f"{row['study']}, {row['contrast']} at step {row['step']}: digits named on held-out images, {row['arm']} "
            f"{_share(row, column='arm_mean')} against {row['against']} {_share(row, column='against_mean')}, "
            f"difference {_interval(row)}"
        )


def _recall(rows: list[dict[str, str]]) -> Iterator[str]:
    for row in (row for row in rows if row["distance"] == "all" and row["method"].endswith("seeds x texts")):
        yield (
            f"{row['study']}, {row['contrast']} at step {row['step']}: names recalled over all distances, {row['arm']} "
            f"{_share(row, column='arm_mean')} against {row['against']} {_share(row, column='against_mean')}, "
            f"difference {_interval(row)}"
        )


def _architecture(rows: list[dict[str, str]]) -> Iterator[str]:
    for row in (row for row in rows if (row["outcome"], row["source"]) == ("loss", "all")):
        yield (
            f"{row['study']}, {row['contrast']}: held-out loss in nats a token, {row['arm']} at step {row['step']} "
            f"{float(row['arm_mean']):.3f} against {row['against']} at step {row['against_step']} {float(row['against_mean']):.3f}, "
            f"difference {_nats(row)}: {row['verdict']}"
        )


def _nats(row: dict[str, str]) -> str:
    if row["n_seeds"] == "1":
        return f"{float(row['estimate']):+.3f}, no interval from 1 seed"
    return f"{float(row['estimate']):+.3f} [{float(row['low']):+.3f}, {float(row['high']):+.3f}], {row['n_seeds']} seeds"


def _arms(config: Config, study: str, rows: list[dict[str, str]]) -> Iterator[str]:
    metric = config.studies[study].analysis.outcome
    for arm in config.studies[study].in_order():
        stop = resolve(config, study, arm).evaluation.stops[0]
        wanted = {"study": study, "arm": arm, "metric": metric, "stop": stop, "scope": "targets"}
        found = {row["phase"]: row for row in rows if wanted.items() <= row.items() and row["method"].endswith(WITHIN_FAMILIES)}
        before, after, gain = (found[phase] for phase in ("before", "after", "gain"))
        yield (f"{study}, {arm}: {metric} on the target families {_share(before)} -> {_share(after)}, gain {_interval(gain)}")


def _interval(row: dict[str, str]) -> str:
    """Return a difference with its interval, which one seed cannot give."""
    if row["n_seeds"] == "1":
        return f"{_points(row)} points, no interval from 1 seed"
    return f"{_points(row)} points [{_points(row, 'low')}, {_points(row, 'high')}], {row['n_seeds']} seeds"


def _share(row: dict[str, str], column: str = "estimate") -> str:
    return f"{float(row[column]):.1%}" if row[column] else "?"


def _points(row: dict[str, str], column: str = "estimate") -> str:
    return f"{100 * float(row[column]):+.1f}" if row[column] else "?"
