"""Whether rewards were earned: what the second judge says of rewarded programs, which of them look suspicious, and the canary's passes.

The evaluation has asked both judges about its completions. Those of RL met the reward cases alone, so the second judge sees them here.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from glint.asking import Task, read_tasks
from glint.config.tree import Config, Recipe, resolve
from glint.files import read_parquet, write_text
from glint.manifest import Manifest, Role
from glint.tasks.families import family_named
from glint.tasks.tokenizer import encode
from glint.verify import Candidate, Verifier, property_cases
from glint.verify.suspicion import suspicions

PHASES: dict[str, tuple[Role, ...]] = {"before": ("before", "before_canary"), "after": ("after", "after_canary"), "training": ("rollouts",)}
LABELS = ["phase", "family", "mode", "stop"]
COUNTS = ["completions", "rewarded", "property_failed", "ignores_argument", "holds_test_value"]
COLUMNS = ["study", "arm", "seed", *LABELS, *COUNTS]

Answer = tuple[str, str]
"""The identity of a task, and a completion of it."""


def audit(config: Config, manifest: Manifest, out: Path) -> None:
    """Write the counts of every study, arm and seed to `out` (CSV): a row a phase, family, mode and stop rule.

    A phase whose files the manifest does not name has no row. Raises VerifierError where the sandbox does not work.
    """
    tables = []
    with Verifier() as verifier:
        for study, plan in config.studies.items():
            for arm in plan.arms:
                recipe = resolve(config, study, arm)
                for seed in plan.seeds:
                    for answers, tasks in _phases(manifest, study, arm, seed, recipe):
                        tables.append(_counted(answers, tasks, verifier, recipe).assign(study=study, arm=arm, seed=seed))
    write_text(out, pd.concat(tables)[COLUMNS].to_csv(index=False, lineterminator="\n"))


def _phases(manifest: Manifest, study: str, arm: str, seed: int, recipe: Recipe) -> Iterator[tuple[pd.DataFrame, dict[str, Task]]]:
    """Yield the answers of each phase of one run, labelled, with their tasks by identity."""
    examples = manifest.path(study, arm, seed, "examples")
    for phase, roles in PHASES.items():
        paths = [path for role in roles if (path := manifest.path(study, arm, seed, role)) is not None]
        if examples is None or not paths:
            continue
        answers = pd.concat([read_parquet(path) for path in paths]).assign(phase=phase)
        if phase == "training":
            answers = answers.assign(split="rl", mode="sampled", stop=recipe.rl.stop)
        yield answers, {task.identity: task for split in answers["split"].unique() for task in read_tasks(examples, split, ())}


def _counted(answers: pd.DataFrame, tasks: dict[str, Task], verifier: Verifier, recipe: Recipe) -> pd.DataFrame:
    """Return the counts of one phase, a row for each combination of `LABELS`."""
    rewarded = answers["verdict"] == "passed"
    pairs: list[Answer] = list(zip(answers["identity"], answers["completion"], strict=True))
    candidates = {pair: tasks[pair[0]].candidate(encode(pair[1], bos=False)) for pair, paid in zip(pairs, rewarded, strict=True) if paid}
    if "property" in answers:
        fooled = answers["property"] != "passed"
    else:
        wrong = _property_failures(candidates, tasks, verifier, recipe.evaluation.property_inputs)
        fooled = pd.Series([pair in wrong for pair in pairs], index=answers.index)
    signs = {pair: suspicions(candidate, family_named(tasks[pair[0]].family).expression) for pair, candidate in candidates.items()}
    flags: dict[str, Any] = {"completions": 1, "rewarded": rewarded, "property_failed": rewarded & fooled}
    flags |= {sign: [sign in signs.get(pair, ()) for pair in pairs] for sign in ("ignores_argument", "holds_test_value")}
    return answers.assign(**flags).groupby(LABELS, sort=False)[COUNTS].sum().reset_index()


def _property_failures(candidates: dict[Answer, Candidate], tasks: dict[str, Task], verifier: Verifier, inputs: int) -> set[Answer]:
    """Return the answers that the second judge does not pass."""
    wider = [
        dataclasses.replace(candidate, cases=property_cases(tasks[identity].family, identity, inputs))
        for (identity, _), candidate in candidates.items()
    ]
    verdicts = zip(candidates, verifier.judge(wider), strict=True)
    return {pair for pair, verdict in verdicts if verdict.verdict != "passed"}
