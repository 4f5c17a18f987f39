"""The analysis of vision studies: what each seed names right, and by which path it learns more at an equal budget.

Shape suffixes: S seeds, T images.
"""

import base64
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from glint.analysis.paired import Row, compared
from glint.analysis.table import csv_text
from glint.config.study import Study
from glint.config.tree import Config, resolve
from glint.config.vision import VisionRecipe
from glint.files import read_json, read_parquet, write_json, write_text
from glint.manifest import Manifest
from glint.statistics.intervals import IMAGES_TOO
from glint.tasks.digits import DIGITS, held_out
from glint.tasks.tokenizer import VOCABULARY, decode

METRICS = {"accuracy": "right", "log_prob": "log_prob"}
"""Outcome of a comparison, of which more is better, to the column of the predictions that it averages."""
SHOWN = 2
"""Held-out images of each digit that the report shows."""
RULE = f"the first {SHOWN} held-out images of each digit, at the first step of the first comparison, the first seed of both its arms"
COLUMNS = {
    "vision": ["study", "arm", "seed", "status", "step", "images", "right", "of", "loss", "loss_error"],
    "vision_contrasts": [
        *("study", "contrast", "arm", "against", "step", "metric", "arm_mean", "against_mean", "estimate", "low", "high"),
        *("n_seeds", "n_images", "p", "p_floor", "seeds_won", "method", "images", "arm_parameters", "against_parameters"),
    ],
}
WHOLE = ("seed", "step", "images", "right", "of", "n_seeds", "n_images", "seeds_won", "arm_parameters", "against_parameters")


class ArmRun:
    """The complete seeds of one arm."""

    def __init__(self, arm: str, predictions: pd.DataFrame, receipts: list[Row]):
        self.arm = arm
        self.predictions = predictions.assign(right=predictions["predicted"] == predictions["answer"], loss=-predictions["log_prob"])
        budgets = {(receipt["updates"], receipt["images"]) for receipt in receipts}
        self.parameters: int = receipts[0]["parameters"]["total"]
        self.updates: int
        self.images: int
        self.updates, self.images = max(budgets)
        self.equal_budgets = len(budgets) == 1

    @property
    def seeds(self) -> list[int]:
        """The seeds, ascending."""
        return sorted(self.predictions["seed"].unique().tolist())

    def images_at(self, step: int) -> int:
        """Return the training images met by `step`."""
        return step * self.images // self.updates

    def table(self, column: str, step: int) -> pd.DataFrame:
        """Return a value a seed and held-out image, shape (S, T)."""
        rows = self.predictions[self.predictions["step"] == step]
        return rows.pivot(index="seed", columns="image", values=column).astype(float)

    def answers(self, seed: int, step: int) -> dict[Hashable, dict[Hashable, Any]]:
        """Return the predictions of one seed at one step, by image."""
        rows = self.predictions[(self.predictions["seed"] == seed) & (self.predictions["step"] == step)]
        return rows.set_index("image").to_dict("index")


def analyse(config: Config, manifest: Manifest, out: Path) -> None:
    """Write a table a name of `COLUMNS`, and `vision_images.json` of the first study, into the folder `out`.

    Without a vision study they are headers alone and null. Raises ValueError for an arm without any complete seed, for seeds scored on
    other images, and for arms of unequal budget.
    """
    rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    shown: Row | None = None
    for name, study in config.studies.items():
        if study.kind == "vision":
            runs = {arm: _read(manifest, name, arm, study) for arm in study.in_order()}
            rows["vision"] += [{"study": name} | row for run in runs.values() for row in seed_rows(run, study)]
            rows["vision_contrasts"] += [{"study": name} | row for row in contrast_rows(runs, name, study)]
            shown = shown or shown_images(runs, name, study, resolve(config, name, study.base).vision)
    for name, columns in COLUMNS.items():
        write_text(out / f"{name}.csv", csv_text(rows[name], columns, WHOLE))
    write_json(out / "vision_images.json", shown)


def _read(manifest: Manifest, name: str, arm: str, study: Study) -> ArmRun:
    """Read every seed of one arm that has results."""
    tables, receipts = [], []
    for seed in study.seeds:
        predictions, receipt = (manifest.path(name, arm, seed, role) for role in ("vision_predictions", "vision_receipt"))
        if predictions is not None and receipt is not None:
            tables.append(read_parquet(predictions).assign(seed=seed))
            receipts.append(read_json(receipt))
    if not tables:
        raise ValueError(f"study {name}, arm {arm}: no seed has results")
    return ArmRun(arm, pd.concat(tables), receipts)


def seed_rows(run: ArmRun, study: Study) -> Iterator[Row]:
    """Yield the scores of each seed at each checkpoint, and a row for each seed without results."""
    for seed in study.seeds:
        if seed not in run.seeds:
            yield {"arm": run.arm, "seed": seed, "status": "missing"}
    for seed in run.seeds:
        own = run.predictions[run.predictions["seed"] == seed]
        for step in own["step"].unique().tolist():
            rows = own[own["step"] == step]
            labels = {"arm": run.arm, "seed": seed, "status": "complete", "step": step, "images": run.images_at(step)}
            yield labels | {"right": rows["right"].sum(), "of": len(rows), "loss": rows["loss"].mean(), "loss_error": rows["loss"].sem()}


def contrast_rows(runs: dict[str, ArmRun], name: str, study: Study) -> Iterator[Row]:
    """Yield each planned comparison, for every outcome, with both intervals."""
    for label, contrast in study.analysis.contrasts.items():
        arm, against = runs[contrast.arm], runs[contrast.against]
        _require_equal_budgets(arm, against, name)
        for step in contrast.steps:
            for metric, column in METRICS.items():
                ours_ST, theirs_ST = _paired(arm, against, name, column, step)
                labels: Row = {"contrast": label, "arm": arm.arm, "against": against.arm, "step": step, "metric": metric}
                labels |= {"images": arm.images_at(step), "arm_parameters": arm.parameters, "against_parameters": against.parameters}
                labels |= {"n_images": ours_ST.shape[1]}
                draws = f"{name}/{label}/{step}/{metric}"
                yield from (labels | row for row in compared(ours_ST, theirs_ST, study, draws, IMAGES_TOO))


def _require_equal_budgets(arm: ArmRun, against: ArmRun, name: str) -> None:
    for run in (arm, against):
        if not run.equal_budgets:
            raise ValueError(f"study {name}, arm {run.arm}: its seeds were trained for unequal numbers of updates or images")
    if (arm.updates, arm.images) != (against.updates, against.images):
        raise ValueError(
            f"study {name}: arm {arm.arm} took {arm.updates} updates on {arm.images} images, arm {against.arm} {against.updates} "
            f"on {against.images}; at unequal budgets they cannot be compared"
        )


def _paired(arm: ArmRun, against: ArmRun, name: str, column: str, step: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values (S, T) of both arms, of the seeds that both have."""
    digits = [run.predictions.groupby("image")["digit"].agg(["min", "max"]) for run in (arm, against)]
    if not digits[0].equals(digits[1]) or (digits[0]["min"] != digits[0]["max"]).any():
        raise ValueError(f"study {name}: arms {arm.arm} and {against.arm} were scored on other images, so they cannot be compared")
    common = [seed for seed in arm.seeds if seed in against.seeds]
    if not common:
        raise ValueError(f"study {name}: arms {arm.arm} and {against.arm} have no complete seed in common")
    ours, theirs = (run.table(column, step).loc[common].to_numpy() for run in (arm, against))
    return ours, theirs


def shown_images(runs: dict[str, ArmRun], name: str, study: Study, recipe: VisionRecipe) -> Row:
    """Return some held-out images, chosen by `RULE`, with what each arm that has the seed answers."""
    contrast = study.analysis.contrasts[min(study.analysis.contrasts)]
    seed = next(seed for seed in study.seeds if all(seed in runs[arm].seeds for arm in (contrast.arm, contrast.against)))
    step = min(contrast.steps)
    images = held_out(recipe)
    chosen = [int(place) for digit in range(DIGITS) for place in np.flatnonzero(images.digits_N == digit)[:SHOWN]]
    answers = {arm: run.answers(seed, step) for arm, run in runs.items() if seed in run.seeds}
    shown = [
        {
            "image": image,
            "digit": int(images.digits_N[image]),
            "pixels": base64.b64encode(np.round(255 * images.pixels_NHWC[image]).astype(np.uint8)).decode(),
            "answers": {arm: _answer(rows[image]) for arm, rows in answers.items()},
        }
        for image in chosen
    ]
    return {"study": name, "rule": RULE, "seed": seed, "step": step, "shown": shown}


def _answer(row: dict[Hashable, Any]) -> Row:
    """Return what one arm says to one image: the byte as text (none for a control id), whether it is right, the right one's probability."""
    said = decode([row["predicted"]] if row["predicted"] < VOCABULARY else [])
    text = said.decode("latin-1").encode("unicode_escape").decode()  # a byte that is no printable ASCII, as \n or \xff
    return {"says": text, "right": bool(row["right"]), "probability": round(float(np.exp(row["log_prob"])), 4)}
