"""What the slides teach with: one task, one group of RL, one text as the model reads and routes it. Each is chosen by a rule.

All are of the first seed of the arm in front.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from glint.config.rl import RLRecipe
from glint.config.tree import Config, resolve
from glint.files import read_parquet, write_json
from glint.manifest import Manifest
from glint.tasks.tokenizer import encode

TASK_RULE = "of each family that RL trains the first task by name, and of these the first that was solved after RL"
UNSOLVED_RULE = "the first task by name of the first family that RL trains; after RL no family’s first task was solved"
UNKNOWN_RULE = "the first task by name of the first family that RL trains"
GROUP_RULE = "the first group whose rewards take the most different values"
TURN_RULE = "the byte whose probability RL has changed the most"


def analyse(config: Config, manifest: Manifest, out: Path) -> None:
    """Write `out` (JSON): `task`, `group`, `next_bytes` and `routing`, each null where the seed lacks its file.

    `solved` says whether the answer to the task after RL, which is the text read and routed, passed, null where that is not known.
    """
    study = config.rl_studies()[0]
    plan = config.studies[study]
    arm, seed = plan.base, plan.seeds[0]
    recipe = resolve(config, study, arm)
    examples, after, rollouts, next_bytes, routing = (
        _read(manifest.path(study, arm, seed, role)) for role in ("examples", "after", "rollouts", "trace_next_bytes", "trace_routing")
    )
    tasks = [] if examples is None else [shown_task(examples, plan.split, one, plan.tasks_per_family) for one in recipe.rl.families]
    passed = set() if after is None else solved_tasks(after, recipe.evaluation.stops[0])
    task = next((one for one in tasks if one["identity"] in passed), tasks[0] if tasks else None)
    family = recipe.rl.families[0] if task is None else task["family"]
    solved = None if after is None or task is None else task["identity"] in passed
    lesson = {
        "study": study,
        "arm": arm,
        "seed": seed,
        "rules": {"task": {True: TASK_RULE, False: UNSOLVED_RULE, None: UNKNOWN_RULE}[solved], "group": GROUP_RULE, "turn": TURN_RULE},
        "task": task,
        "group": None if rollouts is None else shown_group(rollouts, recipe.rl),
        "solved": solved,
        "next_bytes": None if next_bytes is None else read_text(next_bytes, family),
        "routing": None if routing is None or task is None else routes(routing, family, task["prompt"], recipe.model.experts),
    }
    write_json(out, lesson)


def _read(path: Path | None) -> pd.DataFrame | None:
    return None if path is None else read_parquet(path)


def shown_task(examples: pd.DataFrame, split: str, family: str, each: int | None = None) -> dict[str, Any]:
    """Return the task of `family` whose identity comes first among the first `each` of the split (None: all), those that were asked."""
    rows = examples[(examples["split"] == split) & (examples["family"] == family)]
    rows = rows if each is None else rows.head(each)
    row = rows.sort_values("identity").iloc[0]
    return {name: str(row[name]) for name in ("family", "identity", "argument", "prompt", "completion", "cases")}


def solved_tasks(completions: pd.DataFrame, stop: str) -> set[str]:
    """Return the identities whose greedy answer passed under the stop rule."""
    greedy = completions[(completions["mode"] == "greedy") & (completions["stop"] == stop)]
    return set(greedy.loc[greedy["verdict"] == "passed", "identity"])


def baselines(rewards_G: NDArray[np.float64], rule: str) -> NDArray[np.float64]:
    """Return what is taken off each reward [G]: leave_one_out, the mean of the others; none, nothing; else the mean of the group."""
    if rule == "none":
        return np.zeros_like(rewards_G)
    if rule == "leave_one_out":
        others_G: NDArray[np.float64] = (rewards_G.sum() - rewards_G) / (len(rewards_G) - 1)
        return others_G
    return np.full_like(rewards_G, rewards_G.mean())


def scale(rewards_G: NDArray[np.float64], recipe: RLRecipe) -> float:
    """Return what the differences to the baseline are divided by: 1, but for group_normalised."""
    return float(rewards_G.std(ddof=recipe.std_ddof)) + recipe.std_epsilon if recipe.baseline == "group_normalised" else 1.0


def shown_group(rollouts: pd.DataFrame, recipe: RLRecipe) -> dict[str, Any]:
    """Return the first group with the most different rewards, sample by sample; `advantage` is that which the training used."""
    first = rollouts.groupby("group")["credited_reward"].nunique().idxmax()
    rows = rollouts[rollouts["group"] == first].sort_values("sample")
    rewards_G = rows["credited_reward"].to_numpy(dtype=float)
    names = ["completion", "verdict", "reason", "advantage"]
    taken_off = baselines(rewards_G, recipe.baseline)
    samples = rows[names].assign(reward=rewards_G, baseline=taken_off).to_dict("records")
    task = {name: str(rows[name].iloc[0]) for name in ("family", "identity")}
    return task | {"group": int(rows["group"].iloc[0]), "scale": scale(rewards_G, recipe), "samples": samples}


def read_text(next_bytes: pd.DataFrame, family: str) -> dict[str, Any] | None:
    """Return the answer after RL, byte by byte, with what the model before and after RL expects at each; None where the trace left it out.

    `turn` is the place of the byte whose probability differs most between the two.
    """
    rows = next_bytes[(next_bytes["family"] == family) & (next_bytes["answer"] == "after")]
    if rows.empty:
        return None
    places = [_place(of_place) for _, of_place in rows.groupby("position")]
    moved = [abs(place["after"]["probability"] - place["before"]["probability"]) for place in places]
    return {"family": family, "identity": str(rows["identity"].iloc[0]), "turn": int(np.argmax(moved)), "places": places}


def _place(rows: pd.DataFrame) -> dict[str, Any]:
    place: dict[str, Any] = {"given": int(rows["given"].iloc[0])}
    for policy, own in rows.sort_values("rank").groupby("policy"):
        likeliest = [[int(token), float(p)] for token, p in zip(own["token"], own["probability"], strict=True)]
        place[str(policy)] = {"probability": float(own["given_probability"].iloc[0]), "likeliest": likeliest}
    return place


def routes(routing: pd.DataFrame, family: str, prompt: str, experts: int) -> dict[str, Any] | None:
    """Return the first choice of each layer for each byte of the answer, and each expert's share of all choices [E]; or None."""
    rows = routing[routing["family"] == family]
    if rows.empty:
        return None
    answer = rows[(rows["position"] >= len(encode(prompt))) & (rows["choice"] == 0)]
    first = answer.pivot(index="layer", columns="position", values="expert")
    tokens = answer.drop_duplicates("position").sort_values("position")["token"]
    shares = np.bincount(rows["expert"], minlength=experts) / len(rows)
    layers = [{"layer": int(str(layer)), "experts": chosen.astype(int).tolist()} for layer, chosen in first.iterrows()]
    return {"tokens": [int(token) for token in tokens], "layers": layers, "shares": shares.tolist()}
