"""The report: one self-contained HTML page, every number of which comes from a result file or the config."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glint.config.base import digest
from glint.config.tree import Config, resolve
from glint.files import write_text
from glint.report import architecture, contrasts, costs, honesty, recall, starts, vision, wording
from glint.report import tables as views
from glint.report.figures import NAMES
from glint.report.leads import lead
from glint.report.results import HEADLINE, Results
from glint.report.rivals import Solved, against_base, others


def render(config: Config, tables: Path, claims: Path, figures: Path, out: Path) -> None:
    """Write the page to `out` from the folder `tables`, the table `claims` and the SVG files in the folder `figures`."""
    results = Results(tables, claims)
    pictures = {name: Markup((figures / f"{name}.svg").read_text(encoding="utf-8")) for name in NAMES}
    page = _environment().get_template("report.html").render(_content(config, results) | {"figures": pictures})
    write_text(out, page)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("glint.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["Markup"] = Markup
    environment.globals["change"] = views.change
    environment.globals |= {"mechanism_words": wording.MECHANISMS, "real_mechanisms": wording.REAL}
    environment.globals |= {"architecture_verdicts": architecture.VERDICTS, "equal_flops": architecture.EQUAL_FLOPS}
    for name in ("share", "setting", "points", "interval", "p_value", "whole", "count"):
        environment.globals[name] = getattr(wording, name)
    return environment


def _content(config: Config, results: Results) -> dict[str, Any]:
    plan = config.studies[results.study]
    recipe, metric = resolve(config, results.study, results.arm), plan.analysis.outcome
    published = results.published(f"confirm.{HEADLINE.get(metric, '')}.targets.")
    return {
        "config": config,
        "config_text": config.model_dump_json(indent=1),
        "digest": digest(config),
        "plan": plan,
        "recipe": recipe,
        "results": results,
        "targets": plan.analysis.families or recipe.rl.families,
        "metric": wording.metric_name(metric),
        "headline": {phase: results.estimate("targets", metric, phase) for phase in ("before", "after", "gain")},
        "rivals": lead(config, results),
        "control": results.estimate("targets", metric, "gain", arm=plan.analysis.control) if plan.analysis.control else None,
        "published": published.get("gain"),
        "verdicts": results.claims["verdict"].value_counts().to_dict(),
        "single_runs": views.single_runs(results),
        "constants": results.of_study("constants").groupby("name")["value"].first().to_dict(),
        "honesty": honesty.totals(results),
        "example": results.read_json("example"),
        "images": results.read_json("vision_images"),
        "provenance": results.read_json("provenance"),
        "tables": _tables(config, results),
        "floors": results.read("contrasts").groupby("study")["p_floor"].first().to_dict(),
        "vision_floors": results.read("vision_contrasts").groupby("study")["p_floor"].first().to_dict(),
        "unusual": [(study, arm, views.change(config, study, arm)) for study, one in config.studies.items() for arm in _several(one.arms)],
        "missing": [
            row
            for name in ("seeds", "expressions", "vision", "architecture", "recall")
            if results.studies(name)
            for row in results.read(name).query("status == 'missing'")[["study", "arm", "seed"]].to_dict("records")
        ],
    }


def _several(arms: dict[str, Any]) -> list[str]:
    return [name for name, arm in arms.items() if arm.several_changes]


def _rivals(config: Config, results: Results, study: str) -> dict[str, Any]:
    solved = Solved.of_study(results, study)
    return {
        "arms": views.arms(results, config, study),
        "above": starts.above(config, results, study),
        "solved": solved,
        "against_base": against_base(results, solved),
        "rollouts": resolve(config, study, config.studies[study].base).rl.rollouts,
    }


def _contrasts(results: Results, study: str) -> dict[str, Any]:
    return {
        "held_out": contrasts.comparisons(results, study, "held_out"),
        "trained": contrasts.comparisons(results, study, "trained"),
        "forgotten": contrasts.forgotten(results, study),
        "written": contrasts.written(results, study),
        "baselines": contrasts.baselines(results, study),
    }


def _vision(results: Results, study: str) -> dict[str, Any]:
    return {
        "verdicts": vision.verdicts(results, study),
        "comparisons": vision.comparisons(results, study),
        "budgets": vision.budgets(results, study),
        "seeds": vision.seed_by_seed(results, study),
    }


def _architecture(config: Config, results: Results, study: str, metric: str) -> dict[str, Any]:
    plan = config.studies[study]
    steps = resolve(config, study, plan.base).pretraining.steps
    taught = architecture.rewarded(config, results, study)
    return {
        "steps": steps,
        "conclusion": architecture.conclusion(results, study),
        "totals": architecture.totals(results, study, plan.analysis.confidence),
        "rewarded": taught,
        "real": architecture.real(config, results, study),
        "outcomes": architecture.outcomes(config, results, study, metric, taught),
        "costs": architecture.costs(results, study, steps),
        "comparisons": [architecture.comparisons(results, study, outcome) for outcome in architecture.OUTCOMES],
        "by_source": architecture.by_source(results, study),
    }


def _recall(results: Results, study: str) -> dict[str, Any]:
    return {"verdicts": recall.verdicts(results, study), "comparisons": recall.comparisons(results, study)}


def _tables(config: Config, results: Results) -> dict[str, Any]:
    metric = config.studies[results.study].analysis.outcome
    return {
        "claims": views.claims(results),
        "splits": views.splits(config, results.study, results.arm),
        "arms": views.arms(results, config, results.study),
        "above": starts.above(config, results, results.study),
        "rl_studies": {name: _rivals(config, results, name) for name in others(results)},
        "pretraining_studies": {name: _contrasts(results, name) for name, study in config.studies.items() if study.kind == "pretraining"},
        "vision_studies": {name: _vision(results, name) for name, study in config.studies.items() if study.kind == "vision"},
        "architecture_studies": {name: _architecture(config, results, name, metric) for name in results.studies("architecture")},
        "recall_studies": {name: _recall(results, name) for name in results.studies("recall")},
        "growth": {name: costs.growth(results, name) for name in results.studies("costs")},
        "outcomes": views.outcomes(results),
        "families": views.families(results),
        "seeds": views.seeds(results),
        "selection": starts.selection(config, results, results.study),
        "doubtful": honesty.doubtful(results),
        "suspicious": honesty.suspicious(results),
        "canary": honesty.canary(results),
        "mutants": honesty.mutants(results),
        "stops": views.stops(results),
        "timings": views.timings(results),
    }
