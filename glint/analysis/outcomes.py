"""From judged completions to one score a task: the unit that the statistics resample.

Shape suffixes: S seeds, T tasks.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from glint.manifest import Manifest
from glint.statistics.pass_at_k import pass_at_k

TASK = ["family", "identity"]


@dataclass(frozen=True)
class Scores:
    """Scores of one checkpoint under one stop rule: a row a task, a column a metric."""

    rates: pd.DataFrame
    """Share in [0, 1] (for pass@k: its estimate)."""
    units: pd.DataFrame
    """What the share is of: completions, or cases."""
    completions_a_task: dict[str, int]
    """Completions of a task behind each metric."""


@dataclass(frozen=True)
class ArmOutcomes:
    """Both evaluations of one arm: for each stop rule, one `Scores` a complete seed."""

    seeds: tuple[int, ...]
    families: NDArray[np.str_]
    """Family of each task, shape (T,); every seed met these tasks, in this order."""
    before: dict[str, list[Scores]]
    after: dict[str, list[Scores]]

    def only(self, seeds: tuple[int, ...]) -> Self:
        """Return these outcomes restricted to `seeds`, in that order."""
        rows = [self.seeds.index(seed) for seed in seeds]
        before = {stop: [scores[row] for row in rows] for stop, scores in self.before.items()}
        after = {stop: [scores[row] for row in rows] for stop, scores in self.after.items()}
        return type(self)(seeds, self.families, before, after)

    def metrics(self, stop: str) -> list[str]:
        """Return the metrics measured under `stop`."""
        return list(self.before[stop][0].rates.columns)

    def values(self, phase: str, stop: str, metric: str) -> NDArray[np.float64]:
        """Return the scores of `before` or `after` (the phase), shape (S, T)."""
        scores = self.before[stop] if phase == "before" else self.after[stop]
        return np.stack([one.rates[metric].to_numpy(dtype=float) for one in scores])


def read_arm(manifest: Manifest, study: str, arm: str, seeds: tuple[int, ...], ks: tuple[int, ...]) -> ArmOutcomes | None:
    """Read every seed that has both evaluations; None where none has. Raises ValueError where seeds met different tasks."""
    pairs = {seed: (manifest.path(study, arm, seed, "before"), manifest.path(study, arm, seed, "after")) for seed in seeds}
    found = {seed: (before, after) for seed, (before, after) in pairs.items() if before is not None and after is not None}
    if not found:
        return None
    scored = {path: score_file(path, ks) for paths in found.values() for path in paths}
    tasks = _common_tasks(scored)
    before, after = ([scored[paths[phase]] for paths in found.values()] for phase in (0, 1))
    return ArmOutcomes(tuple(found), tasks.get_level_values("family").to_numpy(dtype=str), _by_stop(before), _by_stop(after))


def _common_tasks(scored: dict[Path, dict[str, Scores]]) -> pd.Index:
    first = next(iter(scored))
    tasks = next(iter(scored[first].values())).rates.index
    for path, scores in scored.items():
        if any(not one.rates.index.equals(tasks) for one in scores.values()):
            raise ValueError(f"{path} holds other tasks than {first}: seeds and tasks are not crossed")
    return tasks


def _by_stop(scores: list[dict[str, Scores]]) -> dict[str, list[Scores]]:
    return {stop: [one[stop] for one in scores] for stop in scores[0]}


def score_file(path: Path, ks: tuple[int, ...]) -> dict[str, Scores]:
    """Return the scores of a file of completions by one checkpoint, for each stop rule in it."""
    completions = pd.read_parquet(path)
    checkpoints = completions["checkpoint"].unique()
    if len(checkpoints) != 1:
        raise ValueError(f"{path} must hold the completions of one checkpoint, not of {len(checkpoints)}")
    return {str(stop): score(rows, ks) for stop, rows in completions.groupby("stop", sort=False)}


def score(completions: pd.DataFrame, ks: tuple[int, ...]) -> Scores:
    """Score the completions of one checkpoint under one stop rule; sampled metrics are there where samples were drawn."""
    judged = completions.assign(
        right=completions["verdict"] == "passed",
        rejected=completions["verdict"] == "invalid",
        doubtful=(completions["verdict"] == "passed") & (completions["property"] != "passed"),
    )
    greedy, sampled = judged[judged["mode"] == "greedy"], judged[judged["mode"] == "sampled"]
    columns = {"greedy_pass1": _share(greedy, "right"), "cases_greedy": _cases(greedy)}
    counted = {"greedy_pass1": len(greedy), "cases_greedy": len(greedy)}
    if len(sampled):
        columns |= {"sampled_exact": _share(sampled, "right"), **{f"pass{k}": _pass_at(sampled, k) for k in ks if k > 1}}
        columns |= {"cases_sampled": _cases(sampled), "invalid_sampled": _share(sampled, "rejected")}
        counted |= dict.fromkeys(columns.keys() - counted.keys(), len(sampled))
    columns["rewarded_property_failed"] = _share(judged, "doubtful")
    counted["rewarded_property_failed"] = len(judged)
    rates = pd.DataFrame({name: column["rate"] for name, column in columns.items()})
    units = pd.DataFrame({name: column["units"] for name, column in columns.items()})
    return Scores(rates, units, {name: count // len(rates) for name, count in counted.items()})


def _share(completions: pd.DataFrame, flag: str) -> pd.DataFrame:
    flags = completions.groupby(TASK)[flag]
    return pd.DataFrame({"rate": flags.mean(), "units": flags.count()})


def _cases(completions: pd.DataFrame) -> pd.DataFrame:
    cases = completions.groupby(TASK)[["cases_passed", "cases_total"]].sum()
    return pd.DataFrame({"rate": cases["cases_passed"] / cases["cases_total"], "units": cases["cases_total"]})


def _pass_at(sampled: pd.DataFrame, k: int) -> pd.DataFrame:
    """Return pass@k of each task; raises ValueError where tasks differ in their number of samples."""
    counts = sampled.groupby(TASK)["right"].agg(["sum", "count"])
    if counts["count"].nunique() != 1:
        raise ValueError(f"tasks have between {counts['count'].min()} and {counts['count'].max()} samples; pass@{k} needs one number")
    return pd.DataFrame({"rate": pass_at_k(counts["sum"], int(counts["count"].iloc[0]), k), "units": 1}, index=counts.index)
