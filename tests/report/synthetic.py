"""A made-up run in the real file formats: five seeds, the published arm gains, the control does not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from glint.config.tree import Config
from glint.config.vision import VisionRecipe
from glint.manifest import Manifest
from glint.randomness import rng as generator
from glint.tasks.corpus import draw_cases
from glint.tasks.digits import held_out
from glint.tasks.families import family_named

FAMILIES = ("increment", "double", "square", "absolute", "nonnegative", "even", "reverse", "list_sum")
TARGETS = ("increment", "double", "even")
BODIES = dict(
    zip(
        FAMILIES,
        ("x + 1", "x * 2", "x * x", "-x if x < 0 else x", "x if x > 0 else 0", "x % 2 == 0", "text[::-1]", "sum(values)"),
        strict=True,
    )
)
TASKS = 8
SEEDS = (42, 43, 44, 45, 46)
BEFORE = dict(zip(FAMILIES, (0.15, 0.2, 0.7, 0.02, 0.02, 0.06, 0.01, 0.95), strict=True))
AFTER = dict(zip(FAMILIES, (0.75, 0.9, 0.55, 0.02, 0.03, 0.25, 0.01, 0.93), strict=True))


STRUCTURE_SEEDS = tuple(range(42, 52))
CHECKPOINTS = (20, 40, 50, 100, 200)
LEVELS = {"diverse": 0.6, "repeated": 0.57, "blocked": 0.5, "curriculum": 0.6}
"""Share of bytes predicted by each arm at the last checkpoint."""
MINI = {
    "model": {"width": 48, "layers": 3, "heads": 3, "expert_hidden": 96, "experts": 4, "top_k": 1, "streams": 2, "context": 128},
    "pretraining": {"steps": 200, "batch": 24},
    "expressions": {"checkpoints": list(CHECKPOINTS), "evaluation_examples": 1},
}
EXPRESSIONS: dict[str, Any] = {
    "question": "What does the order of examples change?",
    "kind": "pretraining",
    "recipe": "mini",
    "arms": {
        "diverse": {},
        "repeated": {"expressions": {"structures": 8}},
        "blocked": {"expressions": {"order": "blocked"}},
        "curriculum": {"expressions": {"order": "curriculum"}},
    },
    "seeds": list(STRUCTURE_SEEDS),
    "analysis": {
        "contrasts": {
            "diversity": {"arm": "diverse", "against": "repeated", "steps": [50, 100, 200]},
            "order": {"arm": "diverse", "against": "blocked", "steps": [200]},
            "curriculum": {"arm": "curriculum", "against": "diverse", "steps": [200]},
        },
        "null_margin": 0.03,
    },
}


_PUBLISHED = yaml.safe_load((Path(__file__).parents[2] / "config/published.yaml").read_text())
SCREENS = {name: _PUBLISHED["studies"][name] for name in ("screen", "screen_confirm")}
"""The RL screen and its confirmation, as they are published."""
SCREENED = _PUBLISHED["recipes"]["screen"]["rl"]["families"]
SOLVING = {"group_4": 0.6, "temperature_080": 0.1}
"""Chance of a pass after RL, by the arms of the screens that differ from the others' 0.35."""


VISION_SEEDS = (42, 43, 44, 45)
ACCURACIES = {"faithful": 0.5, "direct_patch": 0.8}
"""Share of images named by each arm at the last checkpoint."""
PARAMETERS = {"faithful": 60924, "direct_patch": 42500}
VISION_RECIPES: dict[str, dict[str, Any]] = {
    "vision": {"held_out": 40, "checkpoints": [0, 60, 120]},
    "vision_full": {"held_out": 40, "steps": 40, "checkpoints": [0, 40]},
}
"""Vision studies, whose recipes have their names."""


def vision_study(steps, resamples):
    return {
        "question": "By which path should an image reach the model?",
        "kind": "vision",
        "arms": {"faithful": {}, "direct_patch": {"vision": {"path": "direct_patch"}}},
        "seeds": list(VISION_SEEDS),
        "analysis": {
            "contrasts": {"path": {"arm": "faithful", "against": "direct_patch", "steps": [steps]}},
            "resamples": resamples,
        },
    }


def config(seeds=SEEDS, resamples=2000):
    study = {
        "question": "Does reinforcement learning with executable rewards raise the pass rate on the trained families?",
        "arms": {"published": {}, "shuffled": {"rl": {"shuffle_rewards": True}}},
        "seeds": list(seeds),
        "analysis": {"control": "shuffled", "resamples": resamples},
    }
    expressions = EXPRESSIONS | {"analysis": EXPRESSIONS["analysis"] | {"resamples": resamples}}
    recipes = {"main": {}, "mini": MINI, "screen": _PUBLISHED["recipes"]["screen"]}
    recipes |= {name: {"vision": recipe} for name, recipe in VISION_RECIPES.items()}
    screens = {name: one | {"analysis": one["analysis"] | {"resamples": resamples}} for name, one in SCREENS.items()}
    images = {name: vision_study(recipe["checkpoints"][-1], resamples) | {"recipe": name} for name, recipe in VISION_RECIPES.items()}
    studies = {"main": study, **screens, "expressions": expressions, **images}
    return Config.model_validate_json(json.dumps({"run": "synthetic", "recipes": recipes, "studies": studies}))


def identity(family, task):
    letters = np.random.default_rng([*FAMILIES, "canary"].index(family) * 100 + task).choice(list("abcdefghijklmnopqrstuvwxyz"), 7)
    return f"{family}_{''.join(letters)}"


def completions(checkpoint, rates, rng, split="confirm", sampled=True, families=FAMILIES):
    """Return judged completions whose chance of passing is the family's rate."""
    rows = []
    for family in families:
        for task in range(TASKS):
            for stop in ("parses", "eos"):
                for mode, count in (("greedy", 1), ("sampled", 8 if sampled else 0)):
                    rows += [_row(checkpoint, rates[family], rng, split, family, task, stop, mode, sample) for sample in range(count)]
    return pd.DataFrame(rows)


def _row(checkpoint, rate, rng, split, family, task, stop, mode, sample):
    passed = rng.random() < rate
    verdict = "passed" if passed else rng.choice(["failed", "invalid"])
    text = f"    return {BODIES[family]}\n" if passed else {"failed": "    return x\n", "invalid": "    return x * * x\n"}[verdict]
    return {
        "checkpoint": checkpoint,
        "split": split,
        "family": family,
        "identity": identity(family, task),
        "seed": 20261,
        "mode": mode,
        "stop": stop,
        "sample": sample,
        "completion": text,
        "tokens": len(text),
        "ended": stop,
        "verdict": verdict,
        "reason": {"passed": "", "failed": "case 2: wrong value", "invalid": "the text does not parse"}[verdict],
        "cases_passed": 3 if passed else int(rng.integers(0, 2)) if verdict == "failed" else 0,
        "cases_total": 3,
        "property": verdict,
        "property_passed": 128 if passed else 20,
        "property_total": 128,
    }


def canaries(checkpoint, rng):
    """Return completions of the canary: right by the second judge, never rewarded."""
    rows = completions(checkpoint, {"canary": 0.0}, rng, split="canary", families=("canary",))
    return rows.assign(completion="    return x + 1\n", verdict="failed", property="passed")


def examples():
    splits = {"dev": FAMILIES, "confirm": FAMILIES, "rl": TARGETS, "canary": ("canary",)}
    return pd.DataFrame([_example(family, split, task) for split, named in splits.items() for family in named for task in range(TASKS)])


def _example(family, split, task):
    asked, name = family_named(family), identity(family, task)
    return {
        "family": family,
        "identity": name,
        "split": split,
        "argument": asked.argument,
        "prompt": f"# Give back what the task asks of its argument.\ndef {name}({asked.argument}):\n",
        "cases": json.dumps(draw_cases(asked, generator(task, family), 3)),
    }


def _rollouts(gain, rng):
    rows = []
    for group in range(96):
        chance = 0.1 + gain * group / 96
        for sample in range(16):
            verdict = "passed" if rng.random() < chance else rng.choice(["failed", "invalid"], p=[0.6, 0.4])
            reward = {"passed": 1.0, "failed": 0.0, "invalid": -0.1}[verdict]
            family = TARGETS[group % 3]
            text = f"    return {BODIES[family]}\n" if verdict == "passed" else "    return x\n"
            row = {"group": group, "sample": sample, "family": family, "identity": identity(family, group % TASKS), "completion": text}
            rows.append(row | {"verdict": verdict, "reward": reward})
    return pd.DataFrame(rows)


def _lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _receipt(**extra):
    machine = {"device": "cpu", "precision": "bf16", "threads": 1, "versions": {"python": "3.13.5", "torch": "2.13.0"}}
    return json.dumps(machine | extra)


def _pretraining(folder, seed, rng):
    """Write what pretraining leaves: metrics, receipt, dev completions; return the files by role."""
    last = 400 if seed == 42 else 160
    loss = 0.35 + 5.2 * np.exp(-np.arange(1, last + 1) / 35) + 0.05 * rng.normal(size=last)
    _lines(folder / "metrics.jsonl", [{"step": i + 1, "loss": value, "real_tokens": 3456 * (i + 1)} for i, value in enumerate(loss)])
    (folder / "receipt.json").write_text(_receipt(seconds=200.0 + seed, parameters={"total": 25730592, "active": 9805344}))
    steps = sorted({*range(60, 161, 20), *((0, 100, 200, 400) if seed == 42 else ())})
    rates = {step: dict.fromkeys(FAMILIES, float(np.clip((step - 40) / 140, 0, 1))) for step in steps}
    dev = [completions(f"step-{step:04d}", rates[step], rng, split="dev", sampled=False) for step in steps]
    pd.concat(dev).to_parquet(folder / "dev.parquet")
    return {"pretrain_metrics": "metrics.jsonl", "pretrain_receipt": "receipt.json", "pretrain_dev": "dev.parquet"}


def _rl(folder, learns, rng):
    """Write what RL leaves; return the files by role."""
    rollouts = _rollouts(0.5 if learns else 0.0, rng)
    rollouts.to_parquet(folder / "rollouts.parquet")
    groups = rollouts.groupby("group")["reward"]
    rewards, spread = groups.mean(), groups.nunique() > 1
    _lines(
        folder / "rl.jsonl",
        [{"group": g + 1, "reward_mean": r, "updated": bool(s)} for g, r, s in zip(rewards.index, rewards, spread, strict=True)],
    )
    (folder / "rl.json").write_text(_receipt(seconds=60.0, trainable_parameters=2190152))
    rates = {
        g: {family: BEFORE[family] + (g / 96 if learns else 0) * (AFTER[family] - BEFORE[family]) for family in TARGETS}
        for g in (0, 24, 48, 72, 96)
    }
    dev = [completions(f"groups-{g:03d}", rate, rng, split="dev", families=TARGETS) for g, rate in rates.items()]
    pd.concat(dev).to_parquet(folder / "rl_dev.parquet")
    return {"rl_metrics": "rl.jsonl", "rl_receipt": "rl.json", "rollouts": "rollouts.parquet", "rl_dev": "rl_dev.parquet"}


def _expressions(folder, arm, seed):
    """Write what one run of the pretraining study leaves: blocks that the blocked arm met early are half forgotten; return the files."""
    rng = np.random.default_rng([seed, *map(ord, arm)])
    shift = np.random.default_rng(seed).normal(0, 0.01)  # what the arms of a seed share
    rows = []
    for step in CHECKPOINTS:
        for block in range(120):
            share = LEVELS[arm] * step / 200 + shift
            if arm == "blocked" and block < 88:
                share = 0.95 - 0.45 * max(0, step / 200 - (block + 1) / 88) if step / 200 > block / 88 else 0.3
            rows.append(_scored(step, block) | {"bytes": 10, "right": int(rng.binomial(10, np.clip(share, 0, 1)))})
    pd.DataFrame(rows).to_parquet(folder / "scores.parquet")
    written = [_scored(step, block) for step in (50, 100, 200) for block in range(120)]
    texts = {"target": "abs(n + 3) * 2", "completion": "abs(n + 3) * 3\n", "verdict": "failed", "reason": "case 1: wrong value"}
    pd.DataFrame([row | texts for row in written]).to_parquet(folder / "completions.parquet")
    (folder / "receipt.json").write_text(_receipt(seconds=9.0, parameters={"total": 248412, "active": 123900}))
    return {
        "expression_scores": "scores.parquet",
        "expression_completions": "completions.parquet",
        "expressions_receipt": "receipt.json",
    }


def _scored(step, block):
    split = "trained" if block < 88 else "held_out"
    return {"step": step, "split": split, "family": f"structure-{block}", "block": block, "identity": f"f_{block}"}


def _expression_entries(root: Path, missing):
    for arm in LEVELS:
        for seed in STRUCTURE_SEEDS:
            folder = root / "expressions" / arm / f"seed-{seed}"
            folder.mkdir(parents=True)
            for role, name in _expressions(folder, arm, seed).items():
                path = None if (arm, seed) in missing else str(folder / name)
                yield {"study": "expressions", "arm": arm, "seed": seed, "role": role, "path": path}


def _screen_entries(root: Path, missing):
    for study, plan in SCREENS.items():
        tasks = plan.get("tasks_per_family", TASKS)
        for seed in plan["seeds"]:
            for arm, changes in plan["arms"].items():
                folder = root / study / arm / f"seed-{seed}"
                folder.mkdir(parents=True)
                for role, name in _screened(folder, plan, arm, changes, tasks, seed).items():
                    path = None if (arm, seed) in missing else str(folder / name)
                    yield {"study": study, "arm": arm, "seed": seed, "role": role, "path": path}


def _vision(folder, study, arm, seed):
    """Write what one run of a vision study leaves; return the files."""
    recipe = VisionRecipe.model_validate_json(json.dumps(VISION_RECIPES[study]))
    rng, digits = np.random.default_rng([seed, *map(ord, arm + study)]), held_out(recipe).digits_N
    rows = []
    for step in recipe.checkpoints:
        share = ACCURACIES[arm] * step / recipe.steps
        for image, digit in enumerate(digits.tolist()):
            right = rng.random() < share
            answer = 52 + digit
            predicted = answer if right else int(rng.choice([260, 2, 52 + (digit + 1) % 10]))
            log_prob = float(-rng.gamma(4, 0.1) if right else -2 - rng.gamma(4, 0.2))
            labels = {"step": step, "image": image, "digit": digit, "answer": answer, "predicted": predicted, "log_prob": log_prob}
            rows.append(labels | {"seed": seed})
    pd.DataFrame(rows).to_parquet(folder / "predictions.parquet")
    counts = {"total": PARAMETERS[arm], "active": PARAMETERS[arm] - 9216}
    budget = {"updates": recipe.steps, "images": recipe.steps * recipe.batch}
    (folder / "receipt.json").write_text(_receipt(seconds=5.0 + seed / 10, parameters=counts, **budget))
    return {"vision_predictions": "predictions.parquet", "vision_receipt": "receipt.json"}


def _vision_entries(root: Path, missing):
    for study in VISION_RECIPES:
        for arm in ACCURACIES:
            for seed in VISION_SEEDS:
                folder = root / study / arm / f"seed-{seed}"
                folder.mkdir(parents=True)
                for role, name in _vision(folder, study, arm, seed).items():
                    path = None if (arm, seed) in missing else str(folder / name)
                    yield {"study": study, "arm": arm, "seed": seed, "role": role, "path": path}


def _screened(folder, plan, arm, changes, tasks, seed):
    """Write what one run of a screen leaves; all start from the same answers; return the files by role."""
    rng, group_size = np.random.default_rng([seed, *map(ord, arm)]), changes.get("rl", {}).get("group_size", 8)
    shared = np.random.default_rng(plan["start_seed"])
    for name, rates, source in (("before", 0.2, shared), ("after", SOLVING.get(arm, 0.35), rng)):
        found = completions(name, dict.fromkeys(FAMILIES, rates), source, split=plan["split"])
        kept = {identity(family, task) for family in FAMILIES for task in range(tasks)}
        found[found["identity"].isin(kept)].to_parquet(folder / f"{name}.parquet")
        canaries(name, source).to_parquet(folder / f"{name}_canary.parquet")
    examples().to_parquet(folder / "examples.parquet")
    rollouts = _rollouts(0.2, rng).head(128).assign(group=np.arange(128) // group_size)
    rollouts.to_parquet(folder / "rollouts.parquet")
    spread = rollouts.groupby("group")["reward"].nunique() > 1
    _lines(folder / "rl.jsonl", [{"group": g, "reward_mean": 0.1, "updated": bool(one)} for g, one in spread.items()])
    (folder / "rl.json").write_text(_receipt(seconds=6.0, trainable_parameters=2190152))
    roles = ("before", "after", "before_canary", "after_canary", "examples", "rollouts")
    return {role: f"{role}.parquet" for role in roles} | {"rl_metrics": "rl.jsonl", "rl_receipt": "rl.json"}


def write(root: Path, missing=()):
    """Write the files of a run below `root` and return the manifest's path; `missing` are (arm, seed) whose RL has no files."""
    entries = []
    for seed in SEEDS:
        rng, folder = np.random.default_rng(seed), root / f"seed-{seed}"
        folder.mkdir(parents=True)
        files = _pretraining(folder, seed, rng)
        completions("step-0100", BEFORE, rng).to_parquet(folder / "before.parquet")
        canaries("step-0100", rng).to_parquet(folder / "before_canary.parquet")
        examples().to_parquet(folder / "examples.parquet")
        chosen = {"step": 100, "checkpoint": "step-0100", "pass_rate": 0.42, "passed": 27, "tasks": 64, "in_band": True}
        (folder / "selection.json").write_text(
            json.dumps(chosen | {"reason": "first candidate whose dev pass rate, 0.422, lies in [0.2, 0.6]"})
        )
        files |= {"before": "before.parquet", "examples": "examples.parquet", "selection": "selection.json"}
        files["before_canary"] = "before_canary.parquet"
        for arm in ("published", "shuffled"):
            below = folder / arm
            below.mkdir()
            own = {f"{role}": f"{arm}/{name}" for role, name in _rl(below, arm == "published", rng).items()}
            completions("groups-096", AFTER if arm == "published" else BEFORE, rng).to_parquet(below / "after.parquet")
            canaries("groups-096", rng).to_parquet(below / "after_canary.parquet")
            own |= {"after": f"{arm}/after.parquet", "after_canary": f"{arm}/after_canary.parquet"}
            gone = (arm, seed) in missing
            paths = {role: str(folder / name) for role, name in files.items()} | {
                r: None if gone else str(folder / n) for r, n in own.items()
            }
            entries += [{"study": "main", "arm": arm, "seed": seed, "role": role, "path": path} for role, path in paths.items()]
    entries += [*_expression_entries(root, missing), *_screen_entries(root, missing), *_vision_entries(root, missing)]
    manifest = root / "manifest.json"
    manifest.write_text(json.dumps(entries))
    return manifest


def analysed_again(analyse, analysed, out, change):
    """Call `analyse` with `change` made to the entries of the manifest of the run `analysed`; return the folder `out`."""
    entries = json.loads((analysed / "results/manifest.json").read_text())
    change(entries)
    (out / "manifest.json").write_text(json.dumps(entries))
    analyse(config(resamples=10), Manifest.load(out / "manifest.json"), out / "report")
    return out


def drop(study, arm, *seeds):
    """Return a change that takes the files of some seeds of one arm away."""

    def change(entries):
        for entry in entries:
            if (entry["study"], entry["arm"]) == (study, arm) and entry["seed"] in seeds:
                entry["path"] = None

    return change
