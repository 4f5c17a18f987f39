"""A made-up architecture study in the real file formats: one arm is worse than the base at equal steps, another at equal FLOPs alone."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from glint.config.load import load
from glint.config.tree import Config
from glint.manifest import Entry, Manifest
from tests.report import synthetic

SEEDS = (42, 43, 44, 45)
CHECKPOINTS = (76, 100, 200)
COUNTS = {"hybrid": (25730592, 9805344), "single": (25730496, 9805248), "dense": (25716224, 25716224)}
"""Parameters of each arm in all, and those that a token uses."""
EXCESS = {"hybrid": 0.0, "single": 0.1, "dense": -0.2}
"""How much more than the hybrid each arm loses at a step, in nats a token."""
TOKENS = 1000
"""Held-out tokens a family."""


def config() -> Config:
    study = {
        "question": "Which structure pays?",
        "kind": "architecture",
        "arms": {
            "hybrid": {},
            "single": {"model": {"residual": "single"}},
            "dense": {"model": {"preset": "dense", "ffn_hidden": 1696, "context": 192}, "several_changes": "another model"},
        },
        "seeds": list(SEEDS),
        "analysis": {
            "contrasts": {
                "streams": {"arm": "hybrid", "against": "single", "steps": [100, 200]},
                "together": {"arm": "hybrid", "against": "dense", "steps": [200]},
                "together_flops": {"arm": "hybrid", "against": "dense", "steps": [200], "against_steps": [76]},
            }
        },
    }
    main = {"question": "Does it help?", "arms": {"published": {}}, "seeds": [42]}
    pretraining = {"steps": 200, "batch": 16, "first_checkpoint": 100, "curve": {"seeds": []}}
    return load({"run": "synthetic", "recipes": {"main": {"pretraining": pretraining}}, "studies": {"main": main, "structure": study}})


def write(root: Path, missing: tuple[tuple[str, int], ...] = ()) -> Manifest:
    """Write the results of every seed and arm into `root`; those in `missing` stand in the manifest without a path."""
    entries = []
    for arm in COUNTS:
        for seed in SEEDS:
            folder = root / arm / f"seed-{seed}"
            folder.mkdir(parents=True)
            files = _trained(folder, arm, seed) | (_costs(folder, arm) if seed == min(SEEDS) else {})
            for role, name in files.items():
                path = None if (arm, seed) in missing and not role.startswith("costs") else str(folder / name)
                entries.append(Entry.model_validate({"study": "structure", "arm": arm, "seed": seed, "role": role, "path": path}))
    return Manifest(entries)


def _trained(folder: Path, arm: str, seed: int) -> dict[str, str]:
    """Write what pretraining and its two evaluations leave; return the files by role."""
    rng = np.random.default_rng([seed, list(COUNTS).index(arm)])
    metrics = [{"step": step, "loss": 1.0, "real_tokens": (1600 + seed) * step} for step in range(1, 201)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    total, active = COUNTS[arm]
    receipt = synthetic._receipt(
        seconds=100.0 + seed, parameters={"total": total, "active": active}, real_tokens=metrics[-1]["real_tokens"], peak_mib=1000.0 + seed
    )
    (folder / "receipt.json").write_text(receipt)
    rows = []
    for step in CHECKPOINTS:
        losses = 100 / step + EXCESS[arm] + 0.01 * rng.normal(size=len(synthetic.FAMILIES)) + np.arange(len(synthetic.FAMILIES)) / 10
        of_family = zip(synthetic.FAMILIES, losses, strict=True)
        rows += [{"step": step, "source": family, "loss": loss, "tokens": TOKENS, "examples": 8} for family, loss in of_family]
        rows.append({"step": step, "source": "all", "loss": losses.mean(), "tokens": len(losses) * TOKENS, "examples": len(losses) * 8})
    pd.DataFrame(rows).to_parquet(folder / "loss.parquet")
    rates = dict.fromkeys(synthetic.FAMILIES, 0.5)
    dev = [synthetic.completions(f"step-{step:04d}", rates, rng, split="dev", sampled=False) for step in CHECKPOINTS]
    pd.concat(dev).to_parquet(folder / "dev.parquet")
    names = {"pretrain_metrics": "metrics.jsonl", "pretrain_receipt": "receipt.json", "pretrain_dev": "dev.parquet"}
    return names | {"loss": "loss.parquet", "loss_receipt": "receipt.json", "pretrain_dev_receipt": "receipt.json"}


def _costs(folder: Path, arm: str) -> dict[str, str]:
    """Write what the model of `arm` costs; return the files by role."""
    slope = 9216.0 if arm == "dense" else 288.0
    contexts = [
        {"context": context, "decode_seconds": 1e-3, "prefill_seconds": 2e-4, "train_seconds": 6e-4, "peak_mib": 900.0}
        | {"cache_bytes": int(slope * context), "cache_bytes_per_token": slope}
        for context in (128, 1024)
    ]
    speed = {"tokens_per_second": 2000.0, "efficiency": 0.4}
    (folder / "costs.json").write_text(json.dumps({"contexts": contexts, "pretrain_step": speed, "decode": speed}))
    return {"costs": "costs.json", "costs_receipt": "receipt.json"}
