"""The analysis of architecture studies: which structure of the model pays, at equal steps and at equal FLOPs, and what it costs.

Shape suffix: S seeds.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from glint.analysis.paired import Row, difference
from glint.analysis.table import csv_text
from glint.analysis.training import headline, passed_by_checkpoint, read_lines
from glint.config.heldout import ALL
from glint.config.study import Study
from glint.config.tree import Config, Recipe, changes, resolve
from glint.files import read_json, read_parquet, write_text
from glint.manifest import Manifest, Role
from glint.statistics.significance import holm

ROLES: tuple[Role, ...] = ("loss", "pretrain_dev", "pretrain_metrics", "pretrain_receipt")
"""What a complete seed has."""
BETTER = {"loss": -1, "dev": 1}
"""Outcomes of a comparison, and which sign of a difference is the better one."""
EQUAL_SIZE = 0.01
"""Arms whose numbers of parameters differ from the base arm's by no more than this share are called equally large."""
CONTRAST = ["study", "contrast", "arm", "against", "step", "against_step", "source", "outcome"]
COLUMNS = {
    "architecture": ["study", "arm", "seed", "status", "step", "source", "loss", "tokens", "flops", "dev"],
    "architecture_contrasts": [
        *(*CONTRAST, "arm_mean", "against_mean", "estimate", "low", "high", "n_seeds", "p", "p_floor", "p_holm", "seeds_won", "method"),
        *("arm_parameters", "against_parameters", "arm_active", "against_active", "arm_flops", "against_flops", "verdict"),
    ],
    "architecture_arms": [
        *("study", "arm", "seeds", "parameters", "active", "changed", "within_1_percent"),
        *("train_tokens_per_second", "train_peak_mib", "final_loss", "final_dev"),
    ],
    "costs": [
        *("study", "arm", "context", "decode_seconds", "prefill_seconds", "train_seconds", "peak_mib"),
        *("cache_bytes", "cache_bytes_per_token"),
    ],
    "costs_speed": ["study", "arm", "what", "tokens_per_second", "efficiency"],
}
WHOLE = (
    *("seed", "step", "against_step", "tokens", "n_seeds", "seeds_won", "seeds", "parameters", "active", "context", "cache_bytes"),
    *("arm_parameters", "against_parameters", "arm_active", "against_active"),
)


@dataclass(frozen=True)
class ArmRun:
    """The complete seeds of one arm."""

    arm: str
    recipe: Recipe
    scores: pd.DataFrame
    """A row a seed, step and source: `loss`, `tokens` and `examples` held out, `flops` of the training up to the step, and for all
    sources together `dev`, the tasks solved, per cent."""
    receipts: list[Row]
    """Of pretraining, a seed each."""

    @property
    def seeds(self) -> list[int]:
        """The seeds, ascending."""
        return sorted(self.scores["seed"].unique().tolist())

    @property
    def parameters(self) -> Row:
        """The numbers of parameters, `total` and `active`."""
        counts: Row = self.receipts[0]["parameters"]
        return counts

    @property
    def examples(self) -> pd.DataFrame:
        """What was held out, by source: a row for each pair of counts met at any seed and step."""
        return self.scores[["source", "tokens", "examples"]].drop_duplicates().set_index("source")

    def values(self, column: str, step: int, source: str, seeds: list[int]) -> NDArray[np.float64]:
        """Return one value a seed, shape (S,)."""
        rows = self.scores[(self.scores["step"] == step) & (self.scores["source"] == source)]
        return rows.set_index("seed")[column].loc[seeds].to_numpy(dtype=float)


def analyse(config: Config, manifest: Manifest, out: Path) -> None:
    """Write a table a name of `COLUMNS` into the folder `out`, headers alone without an architecture study.

    Raises ValueError for an arm without any complete seed or without its costs, and for seeds measured on other examples.
    """
    rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    for name in sorted(name for name, study in config.studies.items() if study.kind == "architecture"):
        study = config.studies[name]
        runs = {arm: _read(manifest, config, name, arm) for arm in study.in_order()}
        _require_same_examples(runs, name)
        found = {
            "architecture": [row for run in runs.values() for row in seed_rows(run, study)],
            "architecture_contrasts": contrast_rows(runs, name, study),
            "architecture_arms": [arm_row(run, runs[study.base]) for run in runs.values()],
        } | cost_rows(manifest, name, study)
        for table, own in found.items():
            rows[table] += [{"study": name} | row for row in own]
    for table, columns in COLUMNS.items():
        write_text(out / f"{table}.csv", csv_text(rows[table], columns, WHOLE))


def _read(manifest: Manifest, config: Config, name: str, arm: str) -> ArmRun:
    """Read every seed of one arm that has results."""
    recipe = resolve(config, name, arm)
    scores, receipts = [], []
    for seed in config.studies[name].seeds:
        paths = {role: path for role in ROLES if (path := manifest.path(name, arm, seed, role)) is not None}
        if len(paths) == len(ROLES):
            receipts.append(read_json(paths["pretrain_receipt"]))
            scores.append(_scores(paths, recipe, receipts[-1]["parameters"]["active"]).assign(seed=seed))
    if not scores:
        raise ValueError(f"study {name}, arm {arm}: no seed has results")
    return ArmRun(arm, recipe, pd.concat(scores), receipts)


def _scores(paths: dict[Role, Path], recipe: Recipe, active: int) -> pd.DataFrame:
    """Return the losses of one seed with the FLOPs behind them (6 a parameter and token: Kaplan et al., 2020) and the dev tasks solved."""
    losses = read_parquet(paths["loss"])
    metrics = read_lines(paths["pretrain_metrics"])
    read = {0: 0} | dict(zip(metrics["step"], metrics["real_tokens"], strict=True))
    solved = passed_by_checkpoint(headline(paths["pretrain_dev"], recipe), "greedy")
    dev = losses["step"].map({step: 100 * passed.mean() for step, passed in solved.items()})
    return losses.assign(flops=6.0 * active * losses["step"].map(read), dev=dev.where(losses["source"] == ALL))


def _require_same_examples(runs: dict[str, ArmRun], name: str) -> None:
    first = next(iter(runs.values())).examples
    for run in runs.values():
        if not run.examples.equals(first) or run.examples.index.has_duplicates:
            raise ValueError(f"study {name}, arm {run.arm}: its losses are of other examples, so they cannot be compared")


def seed_rows(run: ArmRun, study: Study) -> Iterator[Row]:
    """Yield the scores of each seed at each checkpoint, and a row for each seed without results."""
    for seed in study.seeds:
        if seed not in run.seeds:
            yield {"arm": run.arm, "seed": seed, "status": "missing"}
    for row in run.scores.to_dict("records"):
        yield {"arm": run.arm, "status": "complete"} | {str(column): value for column, value in row.items()}


def contrast_rows(runs: dict[str, ArmRun], name: str, study: Study) -> list[Row]:
    """Return each planned comparison: the loss of every source, and the dev tasks solved, with Holm's p over what is planned of `all`."""
    rows = [
        _compared(runs[contrast.arm], runs[contrast.against], name, study, (label, step, against_step, source, outcome))
        for label, contrast in study.analysis.contrasts.items()
        for step, against_step in contrast.pairs
        for outcome, sources in (("loss", _sources(runs)), ("dev", [ALL]))
        for source in sources
    ]
    for outcome in BETTER:
        planned = [row for row in rows if (row["outcome"], row["source"]) == (outcome, ALL)]
        for row, corrected in zip(planned, holm([row["p"] for row in planned]), strict=True):
            row["p_holm"] = float(corrected)
    return rows


def _sources(runs: dict[str, ArmRun]) -> list[str]:
    """Return all together, then each source in the order of the corpus."""
    found: list[str] = next(iter(runs.values())).scores["source"].unique().tolist()
    return [ALL, *(source for source in found if source != ALL)]


def _compared(arm: ArmRun, against: ArmRun, name: str, study: Study, what: tuple[str, int, int, str, str]) -> Row:
    """Return one comparison over the seeds that both arms have."""
    label, step, against_step, source, outcome = what
    seeds = [seed for seed in arm.seeds if seed in against.seeds]
    if not seeds:
        raise ValueError(f"study {name}: arms {arm.arm} and {against.arm} have no complete seed in common")
    ours_S, theirs_S = arm.values(outcome, step, source, seeds), against.values(outcome, against_step, source, seeds)
    row: Row = {"contrast": label, "arm": arm.arm, "against": against.arm, "step": step, "against_step": against_step}
    row |= {"source": source, "outcome": outcome, "arm_mean": ours_S.mean(), "against_mean": theirs_S.mean()}
    row |= difference(ours_S - theirs_S, study, f"{name}/{'/'.join(map(str, what))}")
    row["seeds_won"] = int((BETTER[outcome] * (ours_S - theirs_S) > 0).sum())
    for side, run, own in (("arm", arm, step), ("against", against, against_step)):
        row |= {f"{side}_parameters": run.parameters["total"], f"{side}_active": run.parameters["active"]}
        row[f"{side}_flops"] = run.values("flops", own, ALL, seeds).mean()
    return row | {"verdict": verdict(outcome, row["low"], row["high"])}


def verdict(outcome: str, low: float, high: float) -> str:
    """Return `pays` where the interval of `outcome`, arm less against, holds only what is better, `costs` where only what is worse.

    Otherwise `undecided`, also without an interval (one seed) and where it has no width: of dev tasks a few seeds easily solve equally
    many more, and a spread that was not seen may be there.
    """
    if low == high:
        return "undecided"
    low, high = (low, high) if BETTER[outcome] > 0 else (-high, -low)
    return "pays" if low > 0 else "costs" if high < 0 else "undecided"


def arm_row(run: ArmRun, base: ArmRun) -> Row:
    """Return what one arm is, how fast it trained and where it ended, as means over its seeds."""
    counts, expected, last = run.parameters, base.parameters["total"], run.recipe.pretraining.steps
    return {
        "arm": run.arm,
        "seeds": len(run.seeds),
        "parameters": counts["total"],
        "active": counts["active"],
        "changed": ";".join(changes(base.recipe, run.recipe)),
        "within_1_percent": abs(counts["total"] - expected) <= EQUAL_SIZE * expected,
        "train_tokens_per_second": statistics.median(receipt["real_tokens"] / receipt["seconds"] for receipt in run.receipts),
        "train_peak_mib": statistics.median(receipt["peak_mib"] for receipt in run.receipts),
        "final_loss": run.values("loss", last, ALL, run.seeds).mean(),
        "final_dev": run.values("dev", last, ALL, run.seeds).mean(),
    }


def cost_rows(manifest: Manifest, name: str, study: Study) -> dict[str, list[Row]]:
    """Return what each arm costs, by table: as the context grows, and at short lengths."""
    rows: dict[str, list[Row]] = {"costs": [], "costs_speed": []}
    for arm in study.in_order():
        path = manifest.path(name, arm, min(study.seeds), "costs")
        if path is None:
            raise ValueError(f"study {name}, arm {arm}: what its model costs has not been measured")
        measured = read_json(path)
        rows["costs"] += [{"arm": arm} | row for row in measured["contexts"]]
        rows["costs_speed"] += [{"arm": arm, "what": what} | measured[what] for what in ("pretrain_step", "decode")]
    return rows
