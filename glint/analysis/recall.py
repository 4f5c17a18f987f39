"""The analysis of recall studies: what each seed recalls at each distance, and which model recalls more.

Shape suffixes: S seeds, T texts.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from glint.analysis.paired import Row, compared
from glint.analysis.table import csv_text
from glint.config.study import Study
from glint.config.tree import Config
from glint.files import read_json, read_parquet, write_text
from glint.manifest import Manifest
from glint.statistics.intervals import TEXTS_TOO

ALL = "all"
"""All distances together, beside each alone."""
QUESTION = ["text", "position", "distance", "candidates"]
"""What a question is; all seeds and arms are asked the same."""
COLUMNS = {
    "recall": ["study", "arm", "seed", "status", "step", "distance", "right", "of", "chance", "log_prob"],
    "recall_contrasts": [
        *("study", "contrast", "arm", "against", "step", "distance", "arm_mean", "against_mean", "estimate", "low", "high"),
        *("n_seeds", "n_texts", "p", "p_floor", "seeds_won", "method", "arm_parameters", "against_parameters"),
    ],
}
WHOLE = ("seed", "step", "right", "of", "n_seeds", "n_texts", "seeds_won", "arm_parameters", "against_parameters")


class ArmRun:
    """The complete seeds of one arm."""

    def __init__(self, arm: str, predictions: pd.DataFrame, parameters: int):
        self.arm = arm
        self.predictions = predictions.assign(chance=1 / predictions["candidates"])
        self.parameters = parameters

    @property
    def seeds(self) -> list[int]:
        """The seeds, ascending."""
        return sorted(self.predictions["seed"].unique().tolist())

    @property
    def distances(self) -> list[int]:
        """The distances asked, ascending."""
        return sorted(self.predictions["distance"].unique().tolist())

    def questions(self) -> Iterator[pd.DataFrame]:
        """Yield the questions that each seed was asked at each step, a row each."""
        for _, rows in self.predictions.groupby(["seed", "step"]):
            yield rows[QUESTION].reset_index(drop=True)

    def right(self, step: int, distance: int | str, seeds: list[int]) -> NDArray[np.float64]:
        """Return the share of names recalled, a value a seed and text, shape (S, T)."""
        rows = self.predictions[self.predictions["step"] == step]
        if distance != ALL:
            rows = rows[rows["distance"] == distance]
        return rows.pivot_table(index="seed", columns="text", values="right", aggfunc="mean").loc[seeds].to_numpy(dtype=float)


def analyse(config: Config, manifest: Manifest, out: Path) -> None:
    """Write a table a name of `COLUMNS` into the folder `out`, headers alone without a recall study.

    Raises ValueError for an arm without any complete seed, for seeds that were asked other questions, and for arms that are compared
    and have no seed in common.
    """
    rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    for name in sorted(name for name, study in config.studies.items() if study.kind == "recall"):
        study = config.studies[name]
        runs = {arm: _read(manifest, name, arm, study) for arm in study.in_order()}
        _require_same_questions(runs, name)
        rows["recall"] += [{"study": name} | row for run in runs.values() for row in seed_rows(run, study)]
        rows["recall_contrasts"] += [{"study": name} | row for row in contrast_rows(runs, name, study)]
    for table, columns in COLUMNS.items():
        write_text(out / f"{table}.csv", csv_text(rows[table], columns, WHOLE))


def _read(manifest: Manifest, name: str, arm: str, study: Study) -> ArmRun:
    """Read every seed of one arm that has results."""
    tables, parameters = [], 0
    for seed in study.seeds:
        predictions, receipt = (manifest.path(name, arm, seed, role) for role in ("recall_predictions", "recall_receipt"))
        if predictions is not None and receipt is not None:
            tables.append(read_parquet(predictions).assign(seed=seed))
            parameters = read_json(receipt)["parameters"]["total"]
    if not tables:
        raise ValueError(f"study {name}, arm {arm}: no seed has results")
    return ArmRun(arm, pd.concat(tables), parameters)


def _require_same_questions(runs: dict[str, ArmRun], name: str) -> None:
    first = next(next(iter(runs.values())).questions())
    for run in runs.values():
        if not all(asked.equals(first) for asked in run.questions()):
            raise ValueError(f"study {name}, arm {run.arm}: its seeds were asked other questions, so they cannot be compared")


def seed_rows(run: ArmRun, study: Study) -> Iterator[Row]:
    """Yield what each seed recalls at each checkpoint and distance, and a row for each seed without results."""
    for seed in study.seeds:
        if seed not in run.seeds:
            yield {"arm": run.arm, "seed": seed, "status": "missing"}
    for key, rows in run.predictions.groupby(["seed", "step", "distance"]):
        labels: Row = dict(zip(("seed", "step", "distance"), key, strict=True)) | {"arm": run.arm, "status": "complete"}
        counts = {"right": rows["right"].sum(), "of": len(rows)}
        yield labels | counts | {"chance": rows["chance"].mean(), "log_prob": rows["log_prob"].mean()}


def contrast_rows(runs: dict[str, ArmRun], name: str, study: Study) -> Iterator[Row]:
    """Yield each planned comparison, of all distances together and of each, with both intervals."""
    for label, contrast in study.analysis.contrasts.items():
        arm, against = runs[contrast.arm], runs[contrast.against]
        seeds = [seed for seed in arm.seeds if seed in against.seeds]
        if not seeds:
            raise ValueError(f"study {name}: arms {arm.arm} and {against.arm} have no complete seed in common")
        for step in contrast.steps:
            distances: list[int | str] = [ALL, *arm.distances]
            for distance in distances:
                ours_ST, theirs_ST = (run.right(step, distance, seeds) for run in (arm, against))
                labels: Row = {"contrast": label, "arm": arm.arm, "against": against.arm, "step": step, "distance": distance}
                labels |= {"arm_parameters": arm.parameters, "against_parameters": against.parameters, "n_texts": ours_ST.shape[1]}
                yield from (labels | row for row in compared(ours_ST, theirs_ST, study, f"{name}/{label}/{step}/{distance}", TEXTS_TOO))
