"""Made-up tables of architecture and recall studies, in the columns of the analysis: kda pays, streams cost, experts cannot be decided."""

import json
from itertools import product

import numpy as np
import pandas as pd
from scipy import stats

from glint.analysis import architecture as analysis
from glint.analysis import recall as recall_analysis
from glint.analysis.paired import Row
from glint.config.tree import Config
from glint.statistics.intervals import OVER_SEEDS, TEXTS_TOO
from tests.report import synthetic
from tests.report.synthetic import FAMILIES

SEEDS = (42, 43, 44, 45, 46)
STEPS = (20, 40, 80, 120, 160)
CONTEXTS = (128, 256, 512, 1024, 2048, 4096)
DISTANCES = (16, 32, 64, 128, 256, 512)
CHANCE = 0.125
ARMS = {
    "hybrid": {"loss": 0.42, "dev": 0.60, "flops": 4.1e11, "parameters": 25730592, "active": 9805344, "growth": 0.2},
    "dense": {"loss": 0.47, "dev": 0.52, "flops": 8.2e11, "parameters": 25615360, "active": 25615360, "growth": 1.0},
    "experts": {"loss": 0.421, "dev": 0.60, "flops": 4.12e11, "parameters": 25701120, "active": 9812000, "growth": 0.2},
    "faithful": {"loss": 0.36, "dev": 0.70, "flops": 5.4667e11, "parameters": 25740000, "active": 9830000, "growth": 0.3},
    "indexed": {"loss": 0.415, "dev": 0.61, "flops": 8.21e11, "parameters": 25722000, "active": 9801000, "growth": 0.4},
    "kda": {"loss": 0.37, "dev": 0.68, "flops": 5.46e11, "parameters": 25735000, "active": 9811000, "growth": 0.1},
    "streams": {"loss": 0.45, "dev": 0.55, "flops": 4.13e11, "parameters": 26200000, "active": 10200000, "growth": 0.2},
}
"""By arm: loss and dev pass rate at the end, FLOPs a step, sizes, and the share of its layers whose cache grows."""
CHANGED = {"hybrid": "", "dense": "model.ffn;model.linear;model.residual;model.sparse"}
"""Keys that an arm changes; the others one."""


def loss(study, arm, seed, step, source):
    """Return a held-out loss: falls with the steps, the families differ, the arms of a seed share its luck."""
    rng = np.random.default_rng([seed, step, *map(ord, study + arm + source)])
    luck = np.random.default_rng([seed, step]).normal(0, 0.02)
    family = 0.0 if source == "all" else 0.06 * (FAMILIES.index(source) - 3.5) / 3.5
    return ARMS[arm]["loss"] + family + 5 * np.exp(-step / 24) + luck + rng.normal(0, 0.006)


def dev(arm, seed, step):
    """Return the dev tasks solved greedily, of 64, per cent."""
    rng = np.random.default_rng([seed, step, *map(ord, arm)])
    return 100 * rng.binomial(64, ARMS[arm]["dev"] * step / STEPS[-1]) / 64


def paired(ours, theirs):
    """Return the columns of a comparison over paired seeds."""
    differences = np.array(ours) - np.array(theirs)
    count = len(differences)
    half = stats.t.ppf(0.975, count - 1) * differences.std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
    signs = np.array(list(product((-1, 1), repeat=count)))
    means = signs @ differences / count
    return {
        "arm_mean": np.mean(ours),
        "against_mean": np.mean(theirs),
        "estimate": differences.mean(),
        "low": differences.mean() - half,
        "high": differences.mean() + half,
        "n_seeds": count,
        "p": float((np.abs(means) >= abs(differences.mean()) - 1e-12).mean()),
        "p_floor": 2 / 2**count,
        "method": OVER_SEEDS,
    }


def seeds_of(arm, missing):
    return [seed for seed in SEEDS if (arm, seed) not in missing]


def architecture_rows(study, arms, missing):
    for arm in arms:
        for seed in SEEDS:
            if (arm, seed) in missing:
                yield {"study": study, "arm": arm, "seed": seed, "status": "missing"}
                continue
            for step, source in product(STEPS, ("all", *FAMILIES)):
                yield {
                    **{"study": study, "arm": arm, "seed": seed, "status": "complete", "step": step, "source": source},
                    **{"loss": loss(study, arm, seed, step, source), "tokens": 6912, "flops": (1 + seed / 1e4) * ARMS[arm]["flops"] * step},
                    "dev": dev(arm, seed, step) if source == "all" else None,
                }


def step_pairs(arm):
    """Return, by name, the steps of `arm` and of the base that are compared: equal, and where they differ those of equal FLOPs."""
    equal = min(STEPS, key=lambda step: abs(step - STEPS[-1] * ARMS["hybrid"]["flops"] / ARMS[arm]["flops"]))
    return {arm: (STEPS[-1], STEPS[-1])} | ({f"{arm}_flops": (equal, STEPS[-1])} if equal != STEPS[-1] else {})


def contrast_rows(study, arms, missing):
    for arm in (name for name in arms if name != "hybrid"):
        common = [seed for seed in seeds_of(arm, missing) if seed in seeds_of("hybrid", missing)]
        for (label, (ours, theirs)), source in product(step_pairs(arm).items(), ("all", *FAMILIES)):
            scores = {
                "loss": [[loss(study, name, s, step, source) for s in common] for name, step in ((arm, ours), ("hybrid", theirs))],
                "dev": [[dev(name, s, step) for s in common] for name, step in ((arm, ours), ("hybrid", theirs))],
            }
            for outcome in ("loss", "dev") if source == "all" else ("loss",):
                row = paired(*scores[outcome])
                won = (analysis.BETTER[outcome] * (np.array(scores[outcome][0]) - scores[outcome][1]) > 0).sum()
                yield {
                    **{"study": study, "contrast": label, "arm": arm, "against": "hybrid", "step": ours, "against_step": theirs},
                    **{
                        "source": source,
                        "outcome": outcome,
                        "seeds_won": int(won),
                        "verdict": analysis.verdict(outcome, row["low"], row["high"]),
                    },
                    **{f"{who}_{key}": ARMS[name][key] for who, name in (("arm", arm), ("against", "hybrid")) for key in SIZES},
                    **{"arm_flops": ARMS[arm]["flops"] * ours, "against_flops": ARMS["hybrid"]["flops"] * theirs},
                    **row,
                    "p_holm": min(1.0, 12 * row["p"]) if source == "all" else None,
                }


SIZES = ("parameters", "active")


def arm_rows(study, arms, missing):
    for arm in arms:
        known, seeds = ARMS[arm], seeds_of(arm, missing)
        if seeds:
            yield {
                **{"study": study, "arm": arm, "seeds": len(seeds), "parameters": known["parameters"], "active": known["active"]},
                "changed": CHANGED.get(arm, f"model.{arm}"),
                "within_1_percent": abs(known["parameters"] / ARMS["hybrid"]["parameters"] - 1) <= 0.01,
                "train_tokens_per_second": 8.2e14 / known["flops"],
                "train_peak_mib": 900 + known["flops"] / 1e9,
                "final_loss": np.mean([loss(study, arm, seed, STEPS[-1], "all") for seed in seeds]),
                "final_dev": np.mean([dev(arm, seed, STEPS[-1]) for seed in seeds]),
            }


def cost_rows(study, arms):
    for arm, context in product(arms, CONTEXTS):
        known = ARMS[arm]
        cache = 60000 + 1500 * known["growth"] * context
        yield {
            **{"study": study, "arm": arm, "context": context},
            "decode_seconds": known["flops"] / 1e14 * (1 + known["growth"] * context / 1024),
            "prefill_seconds": known["flops"] / 1e15,
            "train_seconds": known["flops"] / 4e14,
            "peak_mib": 400 + 0.02 * context * known["growth"],
            **{"cache_bytes": round(cache), "cache_bytes_per_token": 1500 * known["growth"]},
        }


def speed_rows(study, arms):
    for arm, (what, operations) in product(arms, {"pretrain_step": 8.2e14, "decode": 9.4e13}.items()):
        yield {"study": study, "arm": arm, "what": what, "tokens_per_second": operations / ARMS[arm]["flops"], "efficiency": 0.5}


def right(arm, seed, distance):
    """Return how many of 64 names are recalled: ever fewer far away, but for arms whose cache grows."""
    share = CHANCE + (0.95 - CHANCE) * np.exp(-distance / (1200 * ARMS[arm]["growth"]))
    return int(np.random.default_rng([seed, distance, *map(ord, arm)]).binomial(64, share))


def recall_rows(study, arms, missing):
    for arm, seed in product(arms, SEEDS):
        if (arm, seed) in missing:
            yield {"study": study, "arm": arm, "seed": seed, "status": "missing"}
            continue
        for distance in DISTANCES:
            named = right(arm, seed, distance)
            yield {
                **{"study": study, "arm": arm, "seed": seed, "status": "complete", "step": STEPS[-1], "distance": distance},
                **{"right": named, "of": 64, "chance": CHANCE, "log_prob": np.log(named / 64 + 0.01)},
            }


def recall_contrast_rows(study, arms, missing):
    for arm in (name for name in arms if name != "hybrid"):
        common = [seed for seed in seeds_of(arm, missing) if seed in seeds_of("hybrid", missing)]
        for distance in ("all", *DISTANCES):
            asked = DISTANCES if distance == "all" else (distance,)
            ours, theirs = ([np.mean([right(name, seed, one) / 64 for one in asked]) for seed in common] for name in (arm, "hybrid"))
            row = {
                **{"study": study, "contrast": f"{arm}_recalls", "arm": arm, "against": "hybrid", "step": STEPS[-1]},
                **{"distance": distance, "n_texts": 64, "seeds_won": sum(a > b for a, b in zip(ours, theirs, strict=True))},
                **{f"{who}_parameters": ARMS[name]["parameters"] for who, name in (("arm", arm), ("against", "hybrid"))},
                **paired(ours, theirs),
            }
            yield row
            yield row | {"low": row["low"] - 0.01, "high": row["high"] + 0.01, "method": TEXTS_TOO}


COLUMNS = analysis.COLUMNS | recall_analysis.COLUMNS
RECIPE = {
    "model": {"context": 640},
    "recall": {
        **{"distances": DISTANCES, "questions": 24, "unasked": 2, "letters": 2, "nearest": 4, "held_out": 64},
        **{"stages": [{"length": 640, "batch": 8, "steps": STEPS[-1]}], "checkpoints": [0, STEPS[-1]]},
    },
}
"""Recipe of the recall studies."""


def config(architecture=("architecture",), recall=("recall",)):
    """Return the config of the synthetic run with the named studies added, whose arms are those of the tables."""
    plan = json.loads(synthetic.config().model_dump_json())
    arms = {arm: {"model": {"heads": heads}} if heads != 6 else {} for arm, heads in zip(ARMS, (6, 1, 2, 3, 4, 8, 12), strict=True)}
    others = [arm for arm in ARMS if arm != "hybrid"]
    contrasts = {
        label: {"arm": arm, "against": "hybrid", "steps": [ours], "against_steps": [theirs]}
        for arm in others
        for label, (ours, theirs) in step_pairs(arm).items()
    }
    study = {"question": "Which structure pays?", "kind": "architecture", "arms": arms, "seeds": SEEDS}
    plan["studies"] |= dict.fromkeys(architecture, study | {"analysis": {"contrasts": contrasts}})
    contrasts = {f"{arm}_recalls": {"arm": arm, "against": "hybrid", "steps": [STEPS[-1]]} for arm in others}
    study |= {"question": "Which structure recalls?", "kind": "recall", "recipe": "names"}
    plan["recipes"]["names"] = RECIPE
    plan["studies"] |= dict.fromkeys(recall, study | {"analysis": {"contrasts": contrasts}})
    return Config.model_validate_json(json.dumps(plan))


def write(folder, architecture=("architecture",), recall=("recall",), arms=tuple(ARMS), missing=()):
    """Write every table into `folder`: of the named studies; of `arms`; `missing` are (arm, seed) without a result."""
    rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    for study in architecture:
        rows["architecture"] += architecture_rows(study, arms, missing)
        rows["architecture_contrasts"] += contrast_rows(study, arms, missing)
        rows["architecture_arms"] += arm_rows(study, arms, missing)
        rows["costs"] += cost_rows(study, arms)
        rows["costs_speed"] += speed_rows(study, arms)
    for study in recall:
        rows["recall"] += recall_rows(study, arms, missing)
        rows["recall_contrasts"] += recall_contrast_rows(study, arms, missing)
    for name, columns in COLUMNS.items():
        pd.DataFrame(rows[name], columns=columns).to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
