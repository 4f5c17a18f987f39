"""The model card of a run, after Mitchell et al. (2019), with the metadata of a model hub: every number from a result or the config."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from glint.config.base import digest
from glint.config.model import ModelRecipe
from glint.config.study import Study
from glint.config.tree import Config, Recipe, resolve
from glint.files import read_json, write_text
from glint.manifest import Manifest, Role
from glint.report import honesty, markdown
from glint.report import tables as views
from glint.report.findings import find
from glint.report.results import Results
from glint.report.tables import Table
from glint.report.wording import interval, metric_name, points, share, whole

WEIGHTS = "model.safetensors"
ROLES: tuple[Role, ...] = ("selection", "pretrain_receipt", "rl_receipt")
"""What stands beside the checkpoints of the front study, or says which one was chosen."""
COUNTS = {"parameters_total": "parameters", "parameters_active": "used by a token", "trainable_parameters": "trained by RL"}
"""Names in constants.csv, and in words."""


def render(config: Config, tables: Path, claims: Path, manifest: Path, out: Path) -> None:
    """Write the card to `out`, from the folder `tables`, the table `claims`, and the hashes of the checkpoints that `manifest` leads to."""
    results = Results(tables, claims)
    write_text(out, markdown.render("model_card.md", _content(config, results, Manifest.load(manifest))))


def _content(config: Config, results: Results, manifest: Manifest) -> dict[str, Any]:
    plan = config.studies[results.study]
    recipe = resolve(config, results.study, results.arm)
    others = [study for study in config.studies if study != results.study]
    return {
        "config": config,
        "digest": digest(config),
        "results": results,
        "plan": plan,
        "recipe": recipe,
        "targets": plan.analysis.families or recipe.rl.families,
        "metadata": _metadata(config, results, plan),
        "constants": results.of_study("constants").query("arm == @results.arm").groupby("name")["value"].first().to_dict(),
        "parts": _parts(recipe.model),
        "models": _models(config, results, plan),
        "headline": {phase: results.estimate("targets", plan.analysis.outcome, phase) for phase in ("before", "after", "gain")},
        "metrics": {name: metric_name(name) for name in results.metrics},
        "outcomes": _outcomes(results, plan),
        "families": views.families(results),
        "findings": [find(config, results, study) for study in others],
        "honesty": honesty.totals(results),
        "checkpoints": _checkpoints(config, manifest, results.study, plan),
        "provenance": results.read_json("provenance"),
        "missing": _missing(results),
    }


def _metadata(config: Config, results: Results, plan: Study) -> dict[str, Any]:
    """Return what heads the card: the fields that model hubs read, with the main results."""
    after = [(metric, results.estimate("targets", metric, "after")["estimate"]) for metric in results.headline]
    metrics = [{"type": metric, "name": metric_name(metric), "value": float(value)} for metric, value in after]
    dataset = {"type": "glint-tasks", "name": f"Glint tasks, target families, split {plan.split}", "split": plan.split}
    result = {"task": {"type": "text-generation"}, "dataset": dataset, "metrics": metrics}
    return {
        "license": "mit",
        "language": ["en", "code"],
        "pipeline_tag": "text-generation",
        "library_name": "glint",
        "tags": ["byte-level", "reinforcement-learning", "executable-rewards", "from-scratch"],
        "model-index": [{"name": f"glint-{config.run}-{results.arm}", "results": [result]}],
    }


def _parts(model: ModelRecipe) -> list[str]:
    """Return what the decoder is made of, one mechanism a sentence."""
    layers = range(model.layers)
    attention = Counter(model.attention(layer) for layer in layers)
    feed_forward = Counter(model.feed_forward(layer) for layer in layers)
    words = _words(model)
    return [
        *(f"**Attention**, {count} of {model.layers} layers: {words[name]}." for name, count in attention.items()),
        *(f"**Feed-forward**, {count} of {model.layers} layers: {words[f'ffn {name}']}." for name, count in feed_forward.items()),
        f"**Residual stream**: {words[model.residual]}.",
    ]


def _words(model: ModelRecipe) -> dict[str, str]:
    experts = f"{model.top_k} of {model.experts} experts and a shared one, of hidden width {model.expert_hidden}, weighed by a"
    streams = f"{model.streams} streams, read and written with"
    return {
        "elu": "linear attention (`elu`)",
        "kda": "Kimi Delta Attention (`kda`)",
        "strided": f"the last {model.window} positions and every position divisible by {model.stride} (`strided`)",
        "indexed": f"{model.visible} positions that an indexer chooses in pools of {model.pool} (`indexed`)",
        "dense": "all positions before (`dense`)",
        "ffn dense": f"one SwiGLU of hidden width {model.dense_hidden}",
        "ffn softmax": f"{experts} softmax",
        "ffn sigmoid": f"{experts} sigmoid",
        "mixed": f"{streams} learned weights (`mixed`)",
        "mhc": f"{streams} weights by the token, mixed by a matrix whose rows and columns sum to one (`mhc`)",
        "single": "the usual one (`single`)",
    }


def _models(config: Config, results: Results, plan: Study) -> Table:
    """Return the size of the model of each arm of the front study, and what the arm changes."""
    counts = results.of_study("constants").groupby(["arm", "name"])["value"].first().to_dict()
    rows = [
        (arm, views.change(config, results.study, arm), *(whole(counts[arm, name]) if (arm, name) in counts else "" for name in COUNTS))
        for arm in plan.in_order()
    ]
    return Table("Models", ("arm", "change", *COUNTS.values()), rows)


def _outcomes(results: Results, plan: Study) -> Table:
    """Return every outcome of every arm of the front study before and after RL, with what it rests on."""
    rows = [_outcome(results, arm, metric) for arm in plan.in_order() for metric in results.headline]
    header = ("arm", "outcome", "before RL", "after RL", "gain", "seeds", "tasks", "completions read")
    return Table("Outcomes on the target families", header, rows)


def _outcome(results: Results, arm: str, metric: str) -> tuple[str, ...]:
    before, after, gain = (results.estimate("targets", metric, phase, arm=arm) for phase in ("before", "after", "gain"))
    levels = (f"{share(row['estimate'])} {interval(row['low'], row['high'])}" for row in (before, after))
    change = f"{points(gain['estimate'])} {interval(gain['low'], gain['high'], signed=True)}"
    return (arm, metric_name(metric), *levels, change, *(whole(gain[name]) for name in ("n_seeds", "n_tasks", "n_completions")))


def _checkpoints(config: Config, manifest: Manifest, study: str, plan: Study) -> Table:
    """Return the path and the hash of the weights from which RL starts and of those with which it ends, a row each."""
    rows: dict[str, tuple[str, ...]] = {}
    for arm in plan.in_order():
        for row in _of_arm(manifest, study, arm, resolve(config, study, arm), plan):
            rows.setdefault(row[2], row)  # arms share their starts
    return Table("Checkpoints", ("arm", "seed", "weights", "SHA-256"), list(rows.values()))


def _of_arm(manifest: Manifest, study: str, arm: str, recipe: Recipe, plan: Study) -> Iterator[tuple[str, ...]]:
    last = f"groups-{recipe.rl.checkpoints()[-1]:03d}"
    for seed in sorted(plan.seeds):
        selection, pretrained, taught = (manifest.path(study, arm, seed, role) for role in ROLES)
        if selection is not None and pretrained is not None:
            first = seed if plan.start_seed is None else plan.start_seed
            yield (arm, str(first), *_weights(pretrained.parent, read_json(selection)["checkpoint"]))
        if taught is not None:
            yield (arm, str(seed), *_weights(taught.parent, last))


def _weights(folder: Path, checkpoint: str) -> tuple[str, str]:
    name = f"{checkpoint}/{WEIGHTS}"
    return f"`{folder / 'checkpoints' / name}`", f"`{read_json(folder / 'weights.json')[name]}`"


def _missing(results: Results) -> list[str]:
    """Return the seeds of the run without a result."""
    names = [name for name in ("seeds", "expressions", "vision", "architecture", "recall") if results.studies(name)]
    tables = [results.read(name).query("status == 'missing'")[["study", "arm", "seed"]] for name in names]
    return [f"`{row['study']}/{row['arm']}` seed {row['seed']}" for row in pd.concat(tables).to_dict("records")]
