"""The result files behind a report, read once."""

from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from glint.files import read_json
from glint.report.seed_values import read_table
from glint.statistics.intervals import TASKS_WITHIN_FAMILIES

HEADLINE = {"greedy_pass1": "greedy", "sampled_exact": "sampled_exact", "pass8": "pass8", "cases_greedy": "tests"}
"""Metric to the part of a claim's id that names it."""
SUMS = ("targets", "others", "all")


class Results:
    """The tables of a run. The study that is first in them, and its first arm, stand in front."""

    def __init__(self, folder: Path, claims: Path):
        self._folder = folder
        self.claims = pd.read_csv(claims)
        self.estimates = self.read("estimates")
        self.study, self.arm, self.stop = self.estimates[["study", "arm", "stop"]].iloc[0]
        self.headline_stop = {str(study): str(stop) for study, stop in self.estimates.groupby("study")["stop"].first().items()}
        front = self.estimates[self.estimates["study"] == self.study]
        self.arms, self.stops, self.scopes, self.metrics = (front[name].unique().tolist() for name in ("arm", "stop", "scope", "metric"))
        self.headline = [name for name in self.metrics if name in HEADLINE or name.startswith("pass")]
        self.families = [scope for scope in self.scopes if scope not in SUMS]

    def read(self, name: str) -> pd.DataFrame:
        """Return one table of the analysis."""
        return read_table(self._folder / f"{name}.csv")

    def studies(self, name: str) -> list[str]:
        """Return the studies of one table, in its order; none where the run has no such table, for it asked for no such study."""
        if not (self._folder / f"{name}.csv").exists():
            return []
        names: list[str] = self.read(name)["study"].unique().tolist()
        return names

    def read_json(self, name: str) -> Any:
        """Return one JSON value of the analysis."""
        return read_json(self._folder / f"{name}.json")

    def of_study(self, name: str, study: str = "") -> pd.DataFrame:
        """Return the rows of one study, the one in front unless it is named, in one table."""
        table = self.read(name)
        rows: pd.DataFrame = table[table["study"] == (study or self.study)]
        return rows

    def curve(self, name: str) -> pd.DataFrame:
        """Return the points of one curve."""
        curves = self.of_study("curves")
        rows: pd.DataFrame = curves[curves["curve"] == name]
        return rows

    @cached_property
    def _narrow(self) -> pd.DataFrame:
        rows = self.estimates[self.estimates["method"] == TASKS_WITHIN_FAMILIES]
        return rows.set_index(["study", "arm", "stop", "scope", "metric", "phase"]).sort_index()

    def estimate(self, scope: str, metric: str, phase: str, *, study: str = "", arm: str = "", stop: str = "") -> pd.Series:
        """Return the row of one quantity; study and arm are those in front, the stop rule the study's first, unless named."""
        study = study or self.study
        key: Any = (study, arm or self.arm, stop or self.headline_stop[study], scope, metric, phase)
        row: pd.Series = self._narrow.loc[key]
        return row

    def published_differences(self) -> dict[str, float]:
        """Return the published differences of pretraining arms by contrast and step, `order.200`."""
        named = self.claims[self.claims["rule"].isin(["effect", "no_difference"])]
        return dict(zip(named["id"].str.removesuffix(".difference"), named["published"], strict=True))

    def published(self, prefix: str) -> dict[str, float]:
        """Return the published figures whose ids start with `prefix`, by the rest of the id."""
        named = self.claims[self.claims["id"].str.startswith(prefix)]
        return dict(zip(named["id"].str.removeprefix(prefix), named["published"], strict=True))
