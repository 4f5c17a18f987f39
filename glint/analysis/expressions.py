"""The analysis of pretraining studies: arms compared seed by seed, and what a training by blocks forgets.

Shape suffixes: S seeds, T structures.
"""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from glint.analysis.baselines import baseline_rows
from glint.analysis.paired import compared, difference
from glint.analysis.table import csv_text
from glint.config.expressions import ExpressionsRecipe
from glint.config.study import Contrast, Study
from glint.config.tree import Config, Recipe, resolve
from glint.files import read_parquet, write_text
from glint.manifest import Manifest, Role
from glint.statistics.intervals import STRUCTURES_TOO, student

Row = dict[str, Any]
SPLITS = ("held_out", "trained")
RESULTS: tuple[Role, Role] = ("expression_scores", "expression_completions")
METRICS = ("byte_accuracy", "exact_expression", "executed")
SHOWN = 5
"""Written expressions of each arm that the report shows."""
GROUP = 8
"""Structures that one trajectory averages, neighbours in the order of the blocks: as many as the narrow arm of the published design has."""
INTERVAL = ["low", "high", "n_seeds", "p", "p_floor", "method"]
COLUMNS = {
    "contrasts": [
        *("study", "contrast", "arm", "against", "step", "split", "metric", "arm_mean", "against_mean", "estimate"),
        *(*INTERVAL, "n_structures", "seeds_won"),
    ],
    "expressions": ["study", "arm", "seed", "status", "step", "split", "metric", "value", "structures"],
    "trajectories": ["study", "arm", "step", "split", "first", "last", "estimate", "low", "high", "n_seeds"],
    "baselines": ["study", "split", "name", "value"],
    "written": ["study", "arm", "seed", "step", "family", "target", "completion", "verdict", "reason"],
    "forgetting": ["study", "arm", "first", "last", "step", "last_step", "after_block", "at_end", "estimate", *INTERVAL],
}
WHOLE = ("seed", "step", "last_step", "first", "last", "n_seeds", "n_structures", "seeds_won", "structures")


class StudyScores:
    """Scores of every complete seed of one study, a value a structure."""

    def __init__(self, long: pd.DataFrame):
        """Take a row a value: arm, metric, split, step, seed, block (the structure), value."""
        keys = ["arm", "metric", "split", "step"]
        self._tables = {key: rows.pivot(index="seed", columns="block", values="value") for key, rows in long.groupby(keys)}
        self.steps: list[int] = sorted(long["step"].unique().tolist())

    def table(self, arm: str, metric: str, split: str, step: int) -> pd.DataFrame:
        """Return the scores of one arm at one checkpoint, shape (S, T), the index the seeds; KeyError where there are none."""
        return self._tables[arm, metric, split, step]

    def measured(self, arm: str, metric: str, step: int) -> bool:
        """Return whether `metric` was taken at `step`: whole expressions are not written at every checkpoint."""
        return (arm, metric, SPLITS[0], step) in self._tables


def analyse(config: Config, manifest: Manifest, out: Path) -> None:
    """Write a table a name of `COLUMNS` into the folder `out`; without a pretraining study they are headers alone.

    Raises ValueError for an arm without any complete seed, for two arms without a common one, and for seeds scored on other examples.
    """
    rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    for name, study in config.studies.items():
        if study.kind == "pretraining":
            recipes = {arm: resolve(config, name, arm) for arm in study.arms}
            for table, found in _study(manifest, name, study, recipes).items():
                rows[table] += [{"study": name} | row for row in found]
    for name, columns in COLUMNS.items():
        write_text(out / f"{name}.csv", csv_text(rows[name], columns, WHOLE))


def _study(manifest: Manifest, name: str, study: Study, recipes: dict[str, Recipe]) -> dict[str, Iterator[Row]]:
    """Return the rows of one study, by table."""
    scores = read_scores(manifest, name, study)
    return {
        "contrasts": contrast_rows(scores, name, study),
        "expressions": seed_rows(scores, study),
        "trajectories": trajectory_rows(scores, study),
        "baselines": baseline_rows(_scored(manifest, name, study)),
        "written": (row for arm in study.arms for row in written_rows(manifest, name, study, arm)),
        "forgetting": (row for arm, recipe in recipes.items() for row in forgetting_rows(scores, study, arm, recipe)),
    }


def read_scores(manifest: Manifest, name: str, study: Study) -> StudyScores:
    """Read every seed that has results."""
    tables = []
    first: tuple[Path, pd.Series] | None = None
    for arm in study.arms:
        found = {seed: paths for seed in study.seeds if (paths := _paths(manifest, name, arm, seed)) is not None}
        if not found:
            raise ValueError(f"study {name}, arm {arm}: no seed has results")
        for seed, (scores_path, completions_path) in found.items():
            scores = read_parquet(scores_path)
            first = first or (scores_path, scores["identity"])
            if not scores["identity"].equals(first[1]):
                raise ValueError(f"{scores_path} holds scores of other examples than {first[0]}: they cannot be compared")
            tables.append(_by_structure(scores, read_parquet(completions_path)).assign(arm=arm, seed=seed))
    return StudyScores(pd.concat(tables))


def _paths(manifest: Manifest, name: str, arm: str, seed: int) -> tuple[Path, Path] | None:
    """Return the files of one seed's scores and written expressions, or None where it lacks one."""
    scores, completions = (manifest.path(name, arm, seed, role) for role in RESULTS)
    return None if scores is None or completions is None else (scores, completions)


def _by_structure(scores: pd.DataFrame, completions: pd.DataFrame) -> pd.DataFrame:
    """Return one value a step, split, structure and metric: the mean over its examples (of bytes, over all bytes of its examples)."""
    keys = ["step", "split", "block"]
    sums = scores.assign(exact=scores["right"] == scores["bytes"]).groupby(keys).agg({"right": "sum", "bytes": "sum", "exact": "mean"})
    metrics = {
        "byte_accuracy": sums["right"] / sums["bytes"],
        "exact_expression": sums["exact"],
        "executed": (completions["verdict"] == "passed").groupby([completions[key] for key in keys]).mean(),
    }
    return pd.concat([values.rename("value").reset_index().assign(metric=metric) for metric, values in metrics.items()])


def contrast_rows(scores: StudyScores, name: str, study: Study) -> Iterator[Row]:
    """Yield each planned comparison, for every split and metric, with both intervals."""
    for label, contrast in study.analysis.contrasts.items():
        for step in contrast.steps:
            for metric in METRICS:
                if scores.measured(contrast.arm, metric, step) and scores.measured(contrast.against, metric, step):
                    for split in SPLITS:
                        ours, theirs = _paired(scores, name, contrast, metric, split, step)
                        labels: Row = {"contrast": label, "arm": contrast.arm, "against": contrast.against}
                        labels |= {"step": step, "split": split, "metric": metric, "n_structures": ours.shape[1]}
                        draws = f"{name}/{label}/{step}/{split}/{metric}"
                        yield from (labels | row for row in compared(ours, theirs, study, draws, STRUCTURES_TOO))


def _paired(
    scores: StudyScores, name: str, contrast: Contrast, metric: str, split: str, step: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the scores (S, T) of both arms, of the seeds that both have."""
    ours, theirs = (scores.table(arm, metric, split, step) for arm in (contrast.arm, contrast.against))
    common = ours.index.intersection(theirs.index)
    if common.empty:
        raise ValueError(f"study {name}: arms {contrast.arm} and {contrast.against} have no complete seed in common")
    return ours.loc[common].to_numpy(), theirs.loc[common].to_numpy()


def seed_rows(scores: StudyScores, study: Study) -> Iterator[Row]:
    """Yield the scores of each seed, the mean over structures, and a row for each seed without results."""
    for arm in study.arms:
        complete = scores.table(arm, METRICS[0], SPLITS[0], scores.steps[-1]).index
        for seed in study.seeds:
            if seed not in complete:
                yield {"arm": arm, "seed": seed, "status": "missing"}
                continue
            for step in scores.steps:
                for metric in [metric for metric in METRICS if scores.measured(arm, metric, step)]:
                    for split in SPLITS:
                        values_T = scores.table(arm, metric, split, step).loc[seed]
                        labels = {"arm": arm, "seed": seed, "status": "complete", "step": step, "split": split, "metric": metric}
                        yield labels | {"value": values_T.mean(), "structures": len(values_T)}


def trajectory_rows(scores: StudyScores, study: Study) -> Iterator[Row]:
    """Yield the byte accuracy at each checkpoint: of the held-out structures, and of each group of trainable ones."""
    for arm in study.arms:
        for step in scores.steps:
            for split in SPLITS:
                table = scores.table(arm, METRICS[0], split, step)
                size = GROUP if split == "trained" else table.shape[1]
                for blocks in _groups(table, size):
                    interval = student(table[blocks].mean(axis=1), study.analysis.confidence)
                    labels = {"arm": arm, "step": step, "split": split, "first": blocks[0], "last": blocks[-1]}
                    yield labels | asdict(interval) | {"n_seeds": len(table)}


def _groups(table: pd.DataFrame, size: int) -> list[list[int]]:
    """Return the blocks of `table`, `size` neighbours at a time."""
    blocks = [int(block) for block in table.columns]
    return [blocks[start : start + size] for start in range(0, len(blocks), size)]


def forgetting_rows(scores: StudyScores, study: Study, arm: str, recipe: Recipe) -> Iterator[Row]:
    """Yield, for an arm that trains block after block, how each group's byte accuracy changes from its last block to the last step."""
    if recipe.expressions.order != "blocked":
        return
    at = partial(scores.table, arm, METRICS[0], "trained")
    last = scores.steps[-1]
    for blocks in _groups(at(last), GROUP):
        ended = _end_of_block(recipe.expressions, recipe.pretraining.batch, blocks[-1])
        step = next((step for step in scores.steps if step >= ended), last)
        if blocks[-1] < recipe.expressions.structures and step < last:
            before_S, after_S = (at(one)[blocks].mean(axis=1).to_numpy() for one in (step, last))
            labels = {"arm": arm, "first": blocks[0], "last": blocks[-1], "step": step, "last_step": last}
            labels |= {"after_block": before_S.mean(), "at_end": after_S.mean()}
            yield labels | difference(after_S - before_S, study, f"{arm}/forgetting/{blocks[0]}")


def written_rows(manifest: Manifest, name: str, study: Study, arm: str) -> Iterator[Row]:
    """Yield what the first complete seed wrote at its last checkpoint, for the first held-out structures, one example each."""
    seed, completions = _last_written(manifest, name, study, arm)
    held_out = completions[completions["split"] == "held_out"]
    for row in held_out.drop_duplicates("block").head(SHOWN).to_dict("records"):
        yield {"arm": arm, "seed": seed} | {name: row[name] for name in ("step", "family", "target", "completion", "verdict", "reason")}


def _last_written(manifest: Manifest, name: str, study: Study, arm: str) -> tuple[int, pd.DataFrame]:
    """Return the first complete seed of an arm, and what it wrote at its last generation step."""
    seed, paths = next((seed, paths) for seed in study.seeds if (paths := _paths(manifest, name, arm, seed)) is not None)
    completions = read_parquet(paths[1])
    last: pd.DataFrame = completions[completions["step"] == completions["step"].max()]
    return seed, last


def _scored(manifest: Manifest, name: str, study: Study) -> pd.DataFrame:
    """Return the scored examples with their targets; all arms and seeds have the same ones."""
    return _last_written(manifest, name, study, next(iter(study.arms)))[1]


def _end_of_block(recipe: ExpressionsRecipe, batch: int, block: int) -> int:
    """Return the step after which `block` is over; blocks are equally long to within one example."""
    return ceil((block + 1) * recipe.examples / recipe.structures / batch)
