"""One task before and after RL, chosen by a rule so that nobody picks a flattering one."""

from typing import Any

import pandas as pd

from glint.config.tree import Recipe
from glint.manifest import Manifest, Role

RULE = (
    "the first task of a trained family, in the order of the evaluation, that the first seed's greedy answer failed before RL"
    " and passed after it; if there is none, the first task of a trained family"
)
ROLES: tuple[Role, ...] = ("before", "after", "examples")


def choose_example(manifest: Manifest, study: str, arm: str, seed: int, recipe: Recipe) -> dict[str, Any] | None:
    """Return prompt and both greedy completions of one task, or None where the seed lacks a file."""
    paths = [manifest.path(study, arm, seed, role) for role in ROLES]
    present = [path for path in paths if path is not None]
    if len(present) < len(ROLES):
        return None
    before, after, examples = (pd.read_parquet(path) for path in present)
    rows = _greedy(before, recipe).merge(_greedy(after, recipe), on=["family", "identity"], suffixes=("_before", "_after"))
    turned = rows[(rows["verdict_before"] != "passed") & (rows["verdict_after"] == "passed")]
    row = (turned if len(turned) else rows).iloc[0]
    prompt = examples.loc[(examples["identity"] == row["identity"]) & (examples["split"] == before["split"].iloc[0]), "prompt"].iloc[0]
    names = ("family", "identity", *(f"{part}_{phase}" for part in ("completion", "verdict", "reason") for phase in ("before", "after")))
    return {"study": study, "arm": arm, "seed": seed, "rule": RULE, "prompt": prompt} | {name: row[name] for name in names}


def _greedy(completions: pd.DataFrame, recipe: Recipe) -> pd.DataFrame:
    """Return the greedy answers to the tasks of the trained families, under the headline stop rule."""
    headline = completions["stop"] == recipe.evaluation.stops[0]
    kept = (completions["mode"] == "greedy") & headline & completions["family"].isin(recipe.rl.families)
    rows: pd.DataFrame = completions.loc[kept, ["family", "identity", "completion", "verdict", "reason"]]
    return rows
