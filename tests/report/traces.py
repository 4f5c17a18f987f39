"""Made-up tables of the stage `trace` and rollouts of one run, in the columns of the real ones."""

import json

import numpy as np
import pandas as pd
import torch

from glint.config.rl import RLRecipe
from glint.tasks.tokenizer import encode
from glint.train.objective import advantages

COMPLETION = "    return x + 1\n"
REWARDS = ((0.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, -0.1), (1.0, 1.0, 0.0, -0.1))
"""Of three groups: no spread, then two with three different rewards."""
VERDICTS = {1.0: "passed", 0.0: "failed", -0.1: "invalid"}


def rollouts(recipe, completion=COMPLETION):
    rows = []
    for group, rewards in enumerate(REWARDS):
        learned = advantages(torch.tensor(rewards), recipe).tolist()
        for sample, (reward, advantage) in enumerate(zip(rewards, learned, strict=True)):
            row = {"group": group, "sample": sample, "family": "increment", "identity": "increment_aaa", "completion": completion}
            verdict = VERDICTS[reward]
            rows.append(row | {"verdict": verdict, "reason": "", "credited_reward": reward, "advantage": advantage})
    return pd.DataFrame(rows)


def next_bytes(identity):
    """Return the probabilities of an answer, before RL 0.5 for each byte, after it 0.6, and 0.9 for the last but one."""
    rows = []
    tokens = encode(COMPLETION, bos=False)
    for position, given in enumerate(tokens):
        for policy, likely in (("before", 0.5), ("after", 0.9 if position == len(tokens) - 2 else 0.6)):
            for rank, (token, p) in enumerate([(given, likely), (4 + ord("<"), 0.1), (2, 0.05)]):
                place = {"family": "increment", "identity": identity, "answer": "after", "position": position, "given": given}
                rows.append(place | {"given_probability": likely, "policy": policy, "rank": rank, "token": token, "probability": p})
    return pd.DataFrame(rows)


def routing(prompt, layers=4, experts=8):
    """Return routes in which byte `position` of layer `layer` goes to the experts after their sum."""
    rows = []
    for layer in range(layers):
        for position, token in enumerate(encode(prompt + COMPLETION)[:-1]):
            for choice in range(2):
                expert = (layer + position + choice) % experts
                row = {"family": "increment", "layer": layer, "position": position, "token": token}
                rows.append(row | {"choice": choice, "expert": expert, "weight": 0.5})
    return pd.DataFrame(rows)


def write(root, manifest, arm="published", seed=42, completion=COMPLETION):
    """Write rollouts and traces of one seed of study main below `root`; return the manifest's entries, with these in place of its own."""
    entries = json.loads(manifest.read_text())
    (examples,) = (
        entry["path"]
        for entry in entries
        if (entry["study"], entry["arm"], entry["seed"], entry["role"]) == ("main", arm, seed, "examples")
    )
    table = pd.read_parquet(examples)
    task = table[(table["split"] == "confirm") & (table["family"] == "increment")].sort_values("identity").iloc[0]
    made = {
        "rollouts": rollouts(RLRecipe(), completion),
        "trace_next_bytes": next_bytes(task["identity"]),
        "trace_routing": routing(task["prompt"]),
        "examples": table.assign(completion=completion),
    }
    kept = [entry for entry in entries if (entry["study"], entry["arm"], entry["seed"]) != ("main", arm, seed) or entry["role"] not in made]
    for role, rows in made.items():
        rows.to_parquet(root / f"{role}.parquet")
        kept.append({"study": "main", "arm": arm, "seed": seed, "role": role, "path": str(root / f"{role}.parquet")})
    return kept


def random_rewards(recipe, seed):
    """Return rewards of one group, and the advantages that training would take from them."""
    rewards_G = np.random.default_rng(seed).choice([1.0, 0.0, -0.1], size=9)
    return rewards_G, advantages(torch.tensor(rewards_G), recipe).numpy()
