"""The training animation: one prompt of each family, and what the model made of it as training went on.

A page that shows it includes `frames.html`, holds the value of `content` as JSON in an element `training-frames`, and runs `frames.js`.
"""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from glint.files import read_parquet
from glint.report.rl_runs import Run

COLUMNS = ("checkpoint", "completion", "verdict", "reason", "cases_passed", "cases_total")
"""What a frame holds, in this order."""


def content(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the frames of every run whose RL checkpoints were asked, by family, with the prompt; `columns` names the values of a frame."""
    return {"columns": list(COLUMNS), "runs": [{**run.name, "families": by_family(run)} for run in runs if "rl_dev" in run.files]}


def by_family(run: Run) -> list[dict[str, Any]]:
    """Return `family`, `prompt` and `frames` of each family; those that RL does not train were not asked after its start."""
    rows = course(run)
    examples = read_parquet(run.files["examples"])
    prompts = examples[examples["identity"].isin(rows["identity"])].set_index("identity")["prompt"]
    return [
        {"family": family, "prompt": prompts[own["identity"].iloc[0]], "frames": own[list(COLUMNS)].to_numpy(dtype=object).tolist()}
        for family, own in rows.groupby("family", sort=False)
    ]


def course(run: Run) -> pd.DataFrame:
    """Return the greedy completions of the shown tasks in the order in which training made their checkpoints.

    Random weights, pretraining up to the start of RL, then RL, whose start is not shown a second time.
    """
    random = read_parquet(run.files["trace_random"])
    start = read_parquet(run.files["before"])["checkpoint"].iloc[0]
    pretraining = _by_checkpoint(read_parquet(run.files["pretrain_dev"])).loc[1 : _number(start)]
    rl = _by_checkpoint(read_parquet(run.files["rl_dev"])).loc[1:]
    rows = pd.concat([random, pretraining, rl], ignore_index=True)
    shown = rows["identity"].isin(random["identity"]) & (rows["mode"] == "greedy") & (rows["stop"] == run.stop)
    return rows[shown]


def _by_checkpoint(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in the order of their checkpoints, with the number of the checkpoint as the index."""
    return table.set_index(table["checkpoint"].map(_number)).sort_index(kind="stable")


def _number(checkpoint: str) -> int:
    """Return 24 of `groups-024`."""
    return int(checkpoint.rpartition("-")[2])
