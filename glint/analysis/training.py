"""What training itself recorded: counts of each RL run, curves, selections, constants, clock times, machines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from glint.config.tree import Recipe
from glint.files import read_json
from glint.manifest import Entry, Manifest, Role

Row = dict[str, Any]
STAGES: dict[Role, str] = {
    "pretrain_receipt": "pretrain",
    "rl_receipt": "rl",
    "pretrain_dev_receipt": "evaluate/pretraining",
    "rl_dev_receipt": "evaluate/curve",
    "before_receipt": "evaluate/before",
    "after_receipt": "evaluate/after",
    "expressions_receipt": "expressions",
    "vision_receipt": "vision",
    "loss_receipt": "loss",
    "costs_receipt": "costs",
    "recall_receipt": "recall",
}
COUNTED: tuple[Role, ...] = ("pretrain_receipt", "rl_receipt", "expressions_receipt", "vision_receipt", "recall_receipt")
"""Receipts that count the parameters of an arm."""


def read_lines(path: Path) -> pd.DataFrame:
    """Return a file of JSON lines as a table; raises ValueError naming a file that is damaged."""
    try:
        return pd.DataFrame([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON lines ({error}); delete it and run again") from error


def rl_row(manifest: Manifest, study: str, arm: str, seed: int, recipe: Recipe) -> Row:
    """Return the counts of one RL run, or the row of a missing one; raises ValueError where it did not draw what `recipe` says."""
    rollouts_path, metrics_path = (manifest.path(study, arm, seed, role) for role in ("rollouts", "rl_metrics"))
    if rollouts_path is None or metrics_path is None:
        return {"seed": seed, "status": "missing"}
    rollouts, metrics = pd.read_parquet(rollouts_path), read_lines(metrics_path)
    if len(rollouts) != recipe.rl.rollouts:
        raise ValueError(f"{rollouts_path} holds {len(rollouts)} rollouts, but the recipe of {study}/{arm} draws {recipe.rl.rollouts}")
    spread = rollouts.groupby("group")["reward"].nunique() > 1
    return {
        "seed": seed,
        "status": "complete",
        "groups": len(spread),
        "rollouts": len(rollouts),
        "updates": int(metrics["updated"].sum()),
        "exact": int((rollouts["verdict"] == "passed").sum()),
        "invalid": int((rollouts["verdict"] == "invalid").sum()),
        "zero_spread_groups": int((~spread).sum()),
    }


def curve_rows(manifest: Manifest, recipes: dict[tuple[str, str], Recipe]) -> Iterator[Row]:
    """Yield the points of every curve, under the headline stop rule; a file that arms share is read once."""
    for entry, path in manifest.distinct("pretrain_metrics"):
        metrics = read_lines(path)
        for step, loss, tokens in zip(metrics["step"], metrics["loss"], metrics["real_tokens"], strict=True):
            yield _labels(entry, "pretrain_loss") | {"x": step, "value": loss}
            yield _labels(entry, "pretrain_tokens") | {"x": step, "value": tokens}
    for entry, path in manifest.distinct("pretrain_dev"):
        yield from _solved(entry, "pretrain_dev_pass1", headline(path, recipes[entry.study, entry.arm]), "greedy")
    for entry, path in manifest.distinct("rl_dev"):
        recipe = recipes[entry.study, entry.arm]
        completions = headline(path, recipe)
        trained = completions[completions["family"].isin(recipe.rl.families)]
        yield from _solved(entry, "rl_dev_exact", trained, "sampled")
        yield from _solved(entry, "rl_dev_pass1", trained, "greedy")
    for entry, path in manifest.distinct("rl_metrics"):
        metrics = read_lines(path)
        for group, reward in zip(metrics["group"], metrics["reward_mean"], strict=True):
            yield _labels(entry, "rl_reward") | {"x": group, "value": reward}


def _labels(entry: Entry, curve: str) -> Row:
    return {"study": entry.study, "arm": entry.arm, "seed": entry.seed, "curve": curve}


def headline(path: Path, recipe: Recipe) -> pd.DataFrame:
    """Read the completions that ended by the stop rule which the recipe names first."""
    completions = pd.read_parquet(path)
    kept: pd.DataFrame = completions[completions["stop"] == recipe.evaluation.stops[0]]
    return kept


def _solved(entry: Entry, curve: str, completions: pd.DataFrame, mode: str) -> Iterator[Row]:
    """Yield the share passed of each checkpoint."""
    for x, passed in passed_by_checkpoint(completions, mode).items():
        yield _labels(entry, curve) | {"x": x, "value": passed.mean(), "count": int(passed.sum()), "of": len(passed)}


def passed_by_checkpoint(completions: pd.DataFrame, mode: str) -> dict[int, pd.Series]:
    """Return whether each completion of one mode passed, by the number in the name of its checkpoint."""
    rows = completions[completions["mode"] == mode]
    found = (rows["verdict"] == "passed").groupby(rows["checkpoint"])
    return {int(str(checkpoint).rpartition("-")[2]): passed for checkpoint, passed in found}


def selection_rows(manifest: Manifest) -> Iterator[Row]:
    """Yield where RL started, and why, for each arm and seed."""
    for entry in manifest.entries:
        if entry.role == "selection" and entry.path is not None:
            chosen = read_json(Path(entry.path))
            kept = ("step", "checkpoint", "pass_rate", "passed", "tasks", "in_band", "reason")
            yield {"study": entry.study, "arm": entry.arm, "seed": entry.seed} | {name: chosen[name] for name in kept}


def constant_rows(manifest: Manifest) -> Iterator[Row]:
    """Yield the parameter counts of each arm and seed."""
    for entry in manifest.entries:
        if entry.role in COUNTED and entry.path is not None:
            receipt = read_json(Path(entry.path))
            if entry.role != "rl_receipt":
                counts = {"parameters_total": receipt["parameters"]["total"], "parameters_active": receipt["parameters"]["active"]}
            else:
                counts = {"trainable_parameters": receipt["trainable_parameters"]}
            for name, value in counts.items():
                yield {"study": entry.study, "arm": entry.arm, "seed": entry.seed, "name": name, "value": value}


def receipts(manifest: Manifest) -> Iterator[tuple[str, Entry, Row]]:
    """Yield stage, entry and receipt of each job, once."""
    for role, stage in STAGES.items():
        for entry, path in manifest.distinct(role):
            yield stage, entry, read_json(path)


def timing_rows(manifest: Manifest) -> Iterator[Row]:
    """Yield the seconds of each job."""
    for stage, entry, receipt in receipts(manifest):
        seconds = {"stage": stage, "seconds": receipt["seconds"], "device": receipt["device"]}
        yield {"study": entry.study, "arm": entry.arm, "seed": entry.seed} | seconds


def machines(manifest: Manifest) -> list[Row]:
    """Return each distinct combination of device, precision, threads and versions."""
    found = [{name: receipt[name] for name in ("device", "precision", "threads", "versions")} for _, _, receipt in receipts(manifest)]
    return [json.loads(text) for text in sorted({json.dumps(machine, sort_keys=True) for machine in found})]
