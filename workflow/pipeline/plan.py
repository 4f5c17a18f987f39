"""The jobs that a config asks for: their recipes, folders and sources. What several arms or studies need is one job."""

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from glint.config.base import Slice, canonical_json
from glint.config.corpus import CorpusJob
from glint.config.costs import CostsJob
from glint.config.evaluation import EvaluateJob, EvaluationRecipe
from glint.config.expressions import ExpressionsJob
from glint.config.heldout import HeldOutJob
from glint.config.mutation import MutationJob
from glint.config.pretraining import PretrainJob
from glint.config.recall import RecallJob
from glint.config.rl import RLJob
from glint.config.selection import SelectJob
from glint.config.study import Study
from glint.config.trace import TraceJob
from glint.config.tree import Config, Recipe, resolve
from glint.config.vision import VisionJob

# One training run serves every wish for its checkpoints, so these name no other job.
EXTENT = ("steps", "checkpoints")


class Id(NamedTuple):
    """What identifies a job."""

    stage: str
    """Folder of the stage under results/<run>/, as `rl` or `evaluate/before`."""
    key: str
    """Digest of all that decides the result except the seed: the job's own recipe and the keys of its sources."""
    seed: int

    def seen_from(self, seed: int) -> str:
        """Return what a job of `seed` that reads this one names it by: the key, and the seed where it is another."""
        return self.key if self.seed == seed else f"{self.key} of seed {self.seed}"


@dataclass(frozen=True)
class Job:
    """One job of the pipeline."""

    id: Id
    slice: Slice
    """The part of the recipe that the job reads."""
    sources: dict[str, Id]
    """The jobs whose results it reads, by stage."""
    upstream: dict[str, Slice] = field(default_factory=dict)
    """The slices of all jobs that it rests on, by stage: whose model it asks, which tasks there are."""

    @property
    def recipe(self) -> str:
        """The slice as one canonical JSON text."""
        return canonical_json(self.slice)


@dataclass(frozen=True)
class Run:
    """All that one seed of one arm of one study goes through, by stage."""

    study: str
    arm: str
    seed: int
    stages: dict[str, Id]


class Arms:
    """Names the arms that a job is for in a message, where Snakemake calls no function: `{ARMS:{wildcards.key}/{wildcards.seed}}`."""

    def __init__(self, runs: list[Run]):
        self._names: dict[str, dict[str, None]] = {}
        for run in runs:
            for id_ in run.stages.values():
                self._names.setdefault(f"{id_.key}/{id_.seed}", {})[f"{run.arm} of {run.study}"] = None

    def __format__(self, job: str) -> str:
        first, *others = self._names[job]
        return f"{first} and {len(others)} more" if others else first


class Plan:
    """Every job of a config, and the runs that need them."""

    def __init__(self, config: Config):
        self.config = config
        self.jobs: dict[Id, Job] = {}
        # As reports list them: what runs share stands under the first of them in every table.
        rl = config.rl_studies()
        in_order = [(name, config.studies[name]) for name in (*rl, *sorted(config.studies.keys() - set(rl)))]
        self.runs = [
            Run(study, arm, seed, self._add_run(_steps(plan, arm, recipe, seed)))
            for study, plan in in_order
            for arm in plan.in_order()
            for recipe in [resolve(config, study, arm)]
            for seed in sorted(plan.seeds)
        ]

    def job(self, stage: str, key: str, seed: str | int) -> Job:
        """Return one job; KeyError if the config does not ask for it."""
        return self.jobs[Id(stage, key, int(seed))]

    def folder(self, job: Id) -> str:
        """Return where the results of `job` lie, relative to the working directory."""
        return f"results/{self.config.run}/{job.stage}/{job.key}/seed-{job.seed}"

    def stage(self, name: str) -> list[Job]:
        """Return the jobs of one stage in the order of their folders."""
        return sorted((job for job in self.jobs.values() if job.id.stage == name), key=lambda job: job.id)

    def stages_of(self, job: Id) -> tuple[str, ...]:
        """Return `job`'s stage and every stage upstream of it, sorted."""
        found = {job.stage}
        for source in self.jobs[job].sources.values():
            found.update(self.stages_of(source))
        return tuple(sorted(found))

    def unused_modules(self, job: Id) -> frozenset[str]:
        """Return the modules of mechanisms that the model of `job`, or of what it reads, is not made of; none where there is no model."""
        own = self.jobs[job]
        model = getattr(own.slice, "model", None)
        if model is not None:
            unused: frozenset[str] = model.unused_modules()
            return unused
        return frozenset().union(*(self.unused_modules(source) for source in own.sources.values()))

    def manifest(self) -> list[dict[str, Any]]:
        """Return where each result of each run lies: study, arm, seed, role, path; of a vision study its own alone, without its start's."""
        return [
            {"study": run.study, "arm": run.arm, "seed": run.seed, "role": role, "path": f"{self.folder(run.stages[stage])}/{file}"}
            for run in self.runs
            for role, (stage, file) in ROLES.items()
            if stage in run.stages and (stage == "vision" or self.config.studies[run.study].kind != "vision")
        ]

    def mutation(self) -> MutationJob:
        """Return how the property suite is tried: with as few cases and inputs as any arm of an rl study uses."""
        studies = {name: plan for name, plan in self.config.studies.items() if plan.kind == "rl"}
        recipes = [resolve(self.config, study, arm) for study, plan in studies.items() for arm in plan.arms]
        return MutationJob(
            reward_cases=min(recipe.corpus.cases_per_task for recipe in recipes),
            property_inputs=min(recipe.evaluation.property_inputs for recipe in recipes),
        )

    def _add_run(self, steps: "Steps") -> dict[str, Id]:
        stages: dict[str, Id] = {}
        for stage, (slice_, sources) in steps.items():
            stages[stage] = self._add(stage, slice_, {name: stages[name] for name in sources})
        return stages

    def _add(self, stage: str, slice_: Slice, sources: dict[str, Id]) -> Id:
        """Add a job, or extend the one that is already there to what this run needs as well."""
        upstream = {name: node for source in sources.values() for name, node in self._from(source).items()}
        job = Job(Id(stage, _key(slice_, sources), slice_.seed), slice_, sources, upstream)
        known = self.jobs.get(job.id)
        self.jobs[job.id] = job if known is None else replace(job, slice=_extended(known.slice, slice_))
        return job.id

    def _from(self, source: Id) -> dict[str, Slice]:
        """Return the slices of `source` and of all that it rests on, by stage."""
        job = self.jobs[source]
        return job.upstream | {source.stage: job.slice}


ROLES = {
    "examples": ("corpus", "examples.parquet"),
    "pretrain_metrics": ("pretrain", "metrics.jsonl"),
    "pretrain_receipt": ("pretrain", "receipt.json"),
    "pretrain_dev": ("evaluate/pretraining", "completions.parquet"),
    "selection": ("select", "selection.json"),
    "rl_metrics": ("rl", "metrics.jsonl"),
    "rl_receipt": ("rl", "receipt.json"),
    "rollouts": ("rl", "rollouts.parquet"),
    "rl_dev": ("evaluate/curve", "completions.parquet"),
    "pretrain_dev_receipt": ("evaluate/pretraining", "receipt.json"),
    "rl_dev_receipt": ("evaluate/curve", "receipt.json"),
    "before_receipt": ("evaluate/before", "receipt.json"),
    "after_receipt": ("evaluate/after", "receipt.json"),
    "before": ("evaluate/before", "completions.parquet"),
    "after": ("evaluate/after", "completions.parquet"),
    "before_canary": ("evaluate/before", "canary.parquet"),
    "after_canary": ("evaluate/after", "canary.parquet"),
    "expressions_receipt": ("expressions", "receipt.json"),
    "expression_scores": ("expressions", "scores.parquet"),
    "expression_completions": ("expressions", "completions.parquet"),
    "vision_predictions": ("vision", "predictions.parquet"),
    "vision_receipt": ("vision", "receipt.json"),
    "loss": ("loss", "loss.parquet"),
    "loss_receipt": ("loss", "receipt.json"),
    "costs": ("costs", "costs.json"),
    "costs_receipt": ("costs", "receipt.json"),
    "recall_predictions": ("recall", "predictions.parquet"),
    "recall_receipt": ("recall", "receipt.json"),
    "trace_next_bytes": ("trace", "next_bytes.parquet"),
    "trace_routing": ("trace", "routing.parquet"),
    "trace_random": ("trace", "random.parquet"),
}
"""Where the file of each role of the manifest lies: stage and name."""

Steps = dict[str, tuple[Slice, tuple[str, ...]]]
"""The stages of one run in order, each with its slice of the recipe and the stages it reads."""


def _steps(study: Study, arm: str, recipe: Recipe, seed: int) -> Steps:
    """Return what one seed of one arm goes through, by the kind of its study."""
    if study.kind == "pretraining":
        return {"expressions": (ExpressionsJob.of(recipe, seed), ())}
    if study.kind == "vision":
        return _vision_steps(recipe, seed)
    if study.kind == "architecture":
        return _architecture_steps(study, arm, recipe, seed)
    if study.kind == "recall":
        return {"recall": (RecallJob.of(recipe, seed), ())}
    return _rl_steps(study, recipe, seed)


def _rl_steps(study: Study, recipe: Recipe, seed: int) -> Steps:
    """Return the stages of an rl study: those up to the start of RL have the seed that its runs share, where they share one."""
    first = seed if study.start_seed is None else study.start_seed
    groups = tuple(f"groups-{count:03d}" for count in recipe.rl.checkpoints())
    start = ("corpus", "pretrain", "select")
    which: dict[str, Any] = {"split": study.split, "tasks_per_family": study.tasks_per_family}
    stages = _start_steps(recipe, first) | {
        "rl": (RLJob(rl=recipe.rl, execution=recipe.execution, seed=seed), start),
        "evaluate/before": (_ask(recipe, first, **which), start),
        "evaluate/after": (_ask(recipe, seed, checkpoints=groups[-1:], **which), (*start, "rl")),
        "trace": (_trace(recipe, seed, study, groups[-1]), (*start, "rl", "evaluate/before", "evaluate/after")),
    }
    if study.curve:
        curve = _ask(recipe, seed, split="dev", families=recipe.rl.families, checkpoints=("groups-000", *groups))
        stages["evaluate/curve"] = (curve, (*start, "rl"))
    return stages


def _trace(recipe: Recipe, seed: int, study: Study, checkpoint: str) -> TraceJob:
    return TraceJob(
        model=recipe.model,
        evaluation=_asked(recipe.evaluation, sampled=False),
        execution=recipe.execution,
        split=study.split,
        tasks_per_family=study.tasks_per_family,
        checkpoint=checkpoint,
        start_seed=study.start_seed,
        seed=seed,
    )


def _start_steps(recipe: Recipe, seed: int) -> Steps:
    """Return what leads to a selected checkpoint."""
    selection = SelectJob(selection=recipe.selection, candidates=recipe.pretraining.candidates(), seed=seed)
    return _pretrained_steps(recipe, PretrainJob.of(recipe, seed)) | {"select": (selection, ("evaluate/pretraining",))}


def _pretrained_steps(recipe: Recipe, pretraining: PretrainJob) -> Steps:
    """Return what leads to the checkpoints of `pretraining` and to their answers on dev."""
    seed = pretraining.seed
    evaluation = _ask(recipe, seed, split="dev", sampled=False, checkpoints=_names(pretraining))
    return {
        "corpus": (CorpusJob(corpus=recipe.corpus, seed=seed), ()),
        "pretrain": (pretraining, ("corpus",)),
        "evaluate/pretraining": (evaluation, ("corpus", "pretrain")),
    }


def _names(pretraining: PretrainJob) -> tuple[str, ...]:
    return tuple(f"step-{step:04d}" for step in pretraining.checkpoints)


def _architecture_steps(study: Study, arm: str, recipe: Recipe, seed: int) -> Steps:
    """Return pretraining with its evaluation, as before RL, and the held-out loss; the lowest seed also measures what the model costs."""
    plan = recipe.pretraining
    pretraining = PretrainJob.of(recipe, seed, also=(*study.compared_steps(arm), plan.steps))
    loss = HeldOutJob(execution=recipe.execution, split="confirm", sequence=plan.sequence, checkpoints=_names(pretraining), seed=seed)
    costs: Steps = {"costs": (CostsJob.of(recipe, seed), ())} if seed == min(study.seeds) else {}
    return _pretrained_steps(recipe, pretraining) | {"loss": (loss, ("corpus", "pretrain"))} | costs


def _ask(recipe: Recipe, seed: int, sampled: bool = True, **which: Any) -> EvaluateJob:
    """Return the evaluation of `which` checkpoints on `which` tasks."""
    return EvaluateJob(evaluation=_asked(recipe.evaluation, sampled), execution=recipe.execution, sampled=sampled, seed=seed, **which)


def _vision_steps(recipe: Recipe, seed: int) -> Steps:
    """Return the training alone, or behind it what leads an rl study to its start: the very same jobs where the recipes agree."""
    job = VisionJob.of(recipe, seed)
    if recipe.vision.start == "random":
        return {"vision": (job, ())}
    return _start_steps(recipe, seed) | {"vision": (job, ("pretrain", "select"))}


def _asked(recipe: EvaluationRecipe, sampled: bool) -> EvaluationRecipe:
    """Return `recipe` without what does not change a completion: k, and where nothing is sampled the sampling."""
    defaults = {name: EvaluationRecipe.model_fields[name].default for name in ("samples", "temperature")}
    return recipe.model_copy(update={"k": (1,)} | ({} if sampled else defaults))


def _key(slice_: Slice, sources: dict[str, Id]) -> str:
    own = slice_.model_dump(mode="json", exclude={"seed", *EXTENT})
    text = json.dumps([own, {stage: source.seen_from(slice_.seed) for stage, source in sources.items()}], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _extended(known: Slice, wanted: Slice) -> Slice:
    ours, theirs = dict(known), dict(wanted)
    longer: dict[str, Any] = {}
    if "steps" in ours:
        longer["steps"] = max(ours["steps"], theirs["steps"])
    if "checkpoints" in ours:
        longer["checkpoints"] = tuple(sorted({*ours["checkpoints"], *theirs["checkpoints"]}))
    return known.model_copy(update=longer)
