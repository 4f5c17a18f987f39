"""Estimates with intervals over seeds and tasks, and the rows of single seeds behind them."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glint.analysis.outcomes import ArmOutcomes, Scores
from glint.config.study import Analysis
from glint.randomness import rng
from glint.statistics.intervals import FAMILIES_TOO, TASKS_WITHIN_FAMILIES, CrossedBootstrap
from glint.statistics.significance import mcnemar, sign_flip


@dataclass(frozen=True)
class Scope:
    """Some of the tasks: `targets` (families of the primary outcome), `others`, `all`, or one family."""

    name: str
    mask: NDArray[np.bool_]
    """Which tasks belong to it, shape (T,)."""
    families: int


def scopes(families_T: NDArray[np.str_], targets: tuple[str, ...], families: tuple[str, ...]) -> list[Scope]:
    """Return the scopes that hold a task, first the sums, then `families` in their order."""
    trained_T = np.isin(families_T, targets)
    masks = {"targets": trained_T, "others": ~trained_T, "all": np.ones_like(trained_T)}
    masks |= {name: families_T == name for name in families}
    return [Scope(name, mask, len(np.unique(families_T[mask]))) for name, mask in masks.items() if mask.any()]


class Estimator:
    """The estimates of one arm, all from the same bootstrap draws."""

    def __init__(self, plan: Analysis, outcomes: ArmOutcomes, over: list[Scope], seed: int, label: str):
        self.plan, self.outcomes, self.label, self.seed = plan, outcomes, label, seed
        self.scopes = over
        self._draws = self._bootstrap(len(outcomes.seeds), outcomes.families, "tasks")
        self._wide = {
            scope.name: self._bootstrap(len(outcomes.seeds), outcomes.families[scope.mask], scope.name, resample_families=True)
            for scope in over
            if scope.families > 1
        }

    def _bootstrap(self, seeds: int, families_T: NDArray[np.str_], name: str, resample_families: bool = False) -> CrossedBootstrap:
        generator = rng(self.seed, "bootstrap", self.label, name)
        return CrossedBootstrap(seeds, families_T, generator, resamples=self.plan.resamples, resample_families=resample_families)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the estimates before, after and of the gain."""
        for stop in self.outcomes.before:
            for metric in self.outcomes.metrics(stop):
                before_ST = self.outcomes.values("before", stop, metric)
                after_ST = self.outcomes.values("after", stop, metric)
                completions = self._completions(stop, metric)
                for phase, values_ST, factor in (("before", before_ST, 1), ("after", after_ST, 1), ("gain", after_ST - before_ST, 2)):
                    yield from self._estimates(values_ST, completions * factor, stop=stop, metric=metric, phase=phase)

    def rows_over(self, other: ArmOutcomes, phase: str) -> Iterator[dict[str, Any]]:
        """Yield, as `phase`, the gain of this arm less the gain of `other`, which has the same seeds."""
        for stop in self.outcomes.before:
            for metric in self.outcomes.metrics(stop):
                gain_ST, others_ST = _gain(self.outcomes, stop, metric), _gain(other, stop, metric)
                completions = 4 * self._completions(stop, metric)
                yield from self._estimates(gain_ST - others_ST, completions, stop=stop, metric=metric, phase=phase)

    def _completions(self, stop: str, metric: str) -> int:
        """Return the completions read for one task, over all seeds, of one checkpoint a seed."""
        return sum(one.completions_a_task[metric] for one in self.outcomes.before[stop])

    def _estimates(self, values_ST: NDArray[np.float64], completions: int, **labels: str) -> Iterator[dict[str, Any]]:
        for scope in self.scopes:
            values = values_ST[:, scope.mask]
            row = labels | {"scope": scope.name, "n_seeds": len(values), "n_tasks": values.shape[1]}
            row |= {"n_completions": completions * values.shape[1]} | self._test(values, labels["phase"])
            interval = self._draws.interval(values_ST, tasks_T=scope.mask, confidence=self.plan.confidence)
            yield row | asdict(interval) | {"method": TASKS_WITHIN_FAMILIES}
            if scope.families > 1:
                wide = self._wide[scope.name].interval(values, confidence=self.plan.confidence)
                yield row | asdict(wide) | {"method": FAMILIES_TOO}

    def _test(self, values_ST: NDArray[np.float64], phase: str) -> dict[str, float]:
        """Return the sign-flip p over seeds, for differences."""
        if phase in ("before", "after"):
            return {"p": np.nan, "p_floor": np.nan}
        test = sign_flip(values_ST.mean(axis=1), rng(self.seed, "sign_flip", self.label))
        return {"p": test.p, "p_floor": test.floor}


def _gain(outcomes: ArmOutcomes, stop: str, metric: str) -> NDArray[np.float64]:
    return outcomes.values("after", stop, metric) - outcomes.values("before", stop, metric)


def seed_rows(outcomes: ArmOutcomes, over: list[Scope]) -> Iterator[dict[str, Any]]:
    """Yield, a seed, scope, stop rule and metric, the counts before and after, and for greedy answers McNemar's test."""
    for stop in outcomes.before:
        for seed, before, after in zip(outcomes.seeds, outcomes.before[stop], outcomes.after[stop], strict=True):
            for scope in over:
                for metric in before.rates.columns:
                    labels = {"seed": seed, "status": "complete", "stop": stop, "scope": scope.name, "metric": metric}
                    yield labels | _counts(before, after, metric, scope.mask)


def _counts(before: Scores, after: Scores, metric: str, tasks_T: NDArray[np.bool_]) -> dict[str, Any]:
    before_T, after_T = (one.rates[metric].to_numpy()[tasks_T] for one in (before, after))
    units_T, later_T = (one.units[metric].to_numpy()[tasks_T] for one in (before, after))
    row: dict[str, Any] = {"before": float(before_T @ units_T), "after": float(after_T @ later_T), "of": int(units_T.sum())}
    if metric == "greedy_pass1":
        test = mcnemar(before_T, after_T)
        row |= {"gains": test.gains, "losses": test.losses, "p": test.p}
    return row


def missing_row(seed: int) -> dict[str, Any]:
    """Return the row of a seed that has no result: it stays visible."""
    return {"seed": seed, "status": "missing"}
