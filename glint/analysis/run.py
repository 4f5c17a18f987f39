"""The analysis of the rl studies: every study, arm and seed of the config, from the manifest to tables."""

from pathlib import Path
from typing import Any

from glint.analysis.comparisons import comparison_rows
from glint.analysis.estimates import Estimator, Scope, missing_row, scopes, seed_rows
from glint.analysis.example import choose_example
from glint.analysis.outcomes import ArmOutcomes, read_arm
from glint.analysis.table import csv_text
from glint.analysis.training import constant_rows, curve_rows, machines, rl_row, selection_rows, timing_rows
from glint.config.base import digest
from glint.config.study import Study
from glint.config.tree import Config, Recipe, resolve
from glint.files import write_json, write_text
from glint.manifest import Manifest

Row = dict[str, Any]
Outcomes = dict[tuple[str, str], ArmOutcomes]
ARM = ["study", "arm"]
VALUES = ["estimate", "low", "high", "n_seeds", "n_tasks", "n_completions", "p", "p_floor", "method"]
COMPARED = ("solved", "against_solved")
COLUMNS = {
    "estimates": [*ARM, "split", "stop", "scope", "metric", "phase", *VALUES],
    "seeds": [*ARM, "seed", "status", "split", "stop", "scope", "metric", "before", "after", "of", "gains", "losses", "p"],
    "comparisons": [*ARM, "against", "seed", "split", "stop", *COMPARED, "of", "gains", "losses", "p", "p_holm", "needed"],
    "rl": [*ARM, "seed", "status", "groups", "rollouts", "updates", "exact", "invalid", "zero_spread_groups"],
    "curves": [*ARM, "seed", "curve", "x", "value", "count", "of"],
    "selection": [*ARM, "seed", "step", "checkpoint", "pass_rate", "passed", "tasks", "in_band", "reason"],
    "constants": [*ARM, "seed", "name", "value"],
    "timings": ["stage", *ARM, "seed", "seconds", "device"],
}
COUNTS = ("of", "gains", "losses", *COMPARED, "needed", "groups", "rollouts", "updates", "exact", "invalid", "zero_spread_groups", "count")
OUTPUTS = (*(f"{name}.csv" for name in COLUMNS), "example.json", "config.json", "provenance.json")


def analyse(config: Config, manifest: Path, out: Path) -> None:
    """Read what the manifest names and write the tables `OUTPUTS` into the folder `out`.

    Raises ValueError for an arm without any complete seed, for seeds that met different tasks and for damaged files.
    """
    files = Manifest.load(manifest)
    arms = [(study, arm) for study in config.rl_studies() for arm in config.studies[study].in_order()]
    recipes = {(study, arm): resolve(config, study, arm) for study, arm in arms}
    outcomes = {(study, arm): _outcomes(config, files, study, arm) for study, arm in arms}
    over = {key: _scopes(config.studies[key[0]], recipe, outcomes[key]) for key, recipe in recipes.items()}
    rows = {
        "estimates": [row for study, arm in arms for row in _estimates(config.studies[study], study, arm, outcomes, over[study, arm])],
        "seeds": [row for study, arm in arms for row in _seeds(config.studies[study], study, arm, outcomes[study, arm], over[study, arm])],
        "comparisons": [row for study in config.rl_studies() for row in _comparisons(config, study, outcomes, over)],
        "rl": [
            _labelled(rl_row(files, study, arm, seed, recipe), study, arm)
            for (study, arm), recipe in recipes.items()
            for seed in config.studies[study].seeds
        ],
        "curves": list(curve_rows(files, recipes | _structures(config))),
        "selection": list(selection_rows(files)),
        "constants": list(constant_rows(files)),
        "timings": list(timing_rows(files)),
    }
    for name, columns in COLUMNS.items():
        write_text(out / f"{name}.csv", csv_text(rows[name], columns, COUNTS))
    study, arm = arms[0]
    write_json(out / "example.json", choose_example(files, study, arm, config.studies[study].seeds[0], recipes[study, arm]))
    write_json(out / "config.json", config.model_dump(mode="json"))
    write_json(out / "provenance.json", {"run": config.run, "config": digest(config), "machines": machines(files)})


def _structures(config: Config) -> dict[tuple[str, str], Recipe]:
    """Return the recipes of the architecture studies, whose runs are pretrained too."""
    studies = {name: plan for name, plan in config.studies.items() if plan.kind == "architecture"}
    return {(study, arm): resolve(config, study, arm) for study, plan in studies.items() for arm in plan.in_order()}


def _scopes(plan: Study, recipe: Recipe, outcomes: ArmOutcomes) -> list[Scope]:
    """Return the scopes of one arm; its targets are the families of the plan, or else those that RL trains."""
    return scopes(outcomes.families, plan.analysis.families or recipe.rl.families, recipe.corpus.families)


def _labelled(row: Row, study: str, arm: str) -> Row:
    return {"study": study, "arm": arm} | row


def _outcomes(config: Config, files: Manifest, study: str, arm: str) -> ArmOutcomes:
    found = read_arm(files, study, arm, config.studies[study].seeds, resolve(config, study, arm).evaluation.k)
    if found is None:
        raise ValueError(f"study {study}, arm {arm}: no seed has results both before and after RL")
    return found


def _estimates(plan: Study, study: str, arm: str, outcomes: Outcomes, over: list[Scope]) -> list[Row]:
    """Return the estimates of one arm, set against the base arm and, where the study has one, against the control."""
    found, label = outcomes[study, arm], f"{study}/{arm}"
    rows = list(Estimator(plan.analysis, found, over, plan.seeds[0], label).rows())
    for phase, name in plan.rivals(arm).items():
        other = outcomes[study, name]
        common = tuple(seed for seed in found.seeds if seed in other.seeds)
        if not common:
            raise ValueError(f"study {study}: arms {arm} and {name} have no complete seed in common")
        paired = Estimator(plan.analysis, found.only(common), over, plan.seeds[0], label)
        rows += paired.rows_over(other.only(common), phase)
    return [_labelled(row, study, arm) | {"split": plan.split} for row in rows]


def _comparisons(config: Config, study: str, outcomes: Outcomes, over: dict[tuple[str, str], list[Scope]]) -> list[Row]:
    """Return the arms of one study against its base, where they are to be set against it."""
    plan = config.studies[study]
    compared = [arm for arm in plan.in_order() if arm == plan.base or "gain_over_base" in plan.rivals(arm)]
    found = {arm: outcomes[study, arm] for arm in compared}
    (targets,) = (scope for scope in over[study, plan.base] if scope.name == "targets")
    rows = comparison_rows(plan.base, found, targets, plan.analysis.confidence)
    return [{"study": study, "split": plan.split} | row for row in rows]


def _seeds(plan: Study, study: str, arm: str, found: ArmOutcomes, over: list[Scope]) -> list[Row]:
    """Return the rows of every seed of the config, the missing ones too."""
    rows = [*seed_rows(found, over), *(missing_row(seed) for seed in plan.seeds if seed not in found.seeds)]
    return [_labelled(row, study, arm) | {"split": plan.split} for row in rows]
