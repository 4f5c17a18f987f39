"""The whole config: recipes, studies, and the resolution of an arm into one recipe."""

import json
from collections.abc import Iterator
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from glint.config.base import Name, Positive, Strict
from glint.config.corpus import ALL_FAMILIES, CorpusRecipe
from glint.config.costs import CostsRecipe
from glint.config.errors import sentence, unknown
from glint.config.evaluation import EvaluationRecipe
from glint.config.execution import ExecutionRecipe
from glint.config.expressions import SCORING, ExpressionsRecipe, check_training
from glint.config.model import ModelRecipe
from glint.config.presets import written_out
from glint.config.pretraining import PretrainingRecipe
from glint.config.recall import RecallRecipe
from glint.config.rl import RLRecipe
from glint.config.selection import SelectionRecipe
from glint.config.study import SECTIONS, Arm, Study
from glint.config.vision import SHARED, VisionRecipe

MOST_CHECKPOINTS = 1000
ASKED = (("corpus", "families"), ("corpus", "cases_per_task"), ("corpus", "evaluation_seed"), ("evaluation", "stops"), ("evaluation", "k"))
"""Keys that decide which tasks an rl study's arms meet and by which rules they are scored, beside the number of tasks in its split."""
FRONT = "main"
"""Name of the study with which the report opens; without one so named, it is the first rl study by name."""


class Recipe(Strict):
    """Everything that decides the outcome of one training seed."""

    model: ModelRecipe = Field(default_factory=ModelRecipe)
    """Mechanisms and sizes of the network; the name of a preset stands for its values, and `preset` among the keys for the other ones."""
    corpus: CorpusRecipe = Field(default_factory=CorpusRecipe)
    """Families and task counts."""
    pretraining: PretrainingRecipe = Field(default_factory=PretrainingRecipe)
    """Next-byte training from random weights."""
    selection: SelectionRecipe = Field(default_factory=SelectionRecipe)
    """Where RL starts."""
    rl: RLRecipe = Field(default_factory=RLRecipe)
    """Learning from executable rewards."""
    evaluation: EvaluationRecipe = Field(default_factory=EvaluationRecipe)
    """How checkpoints are asked."""
    expressions: ExpressionsRecipe = Field(default_factory=ExpressionsRecipe)
    """What studies of kind pretraining train on."""
    vision: VisionRecipe = Field(default_factory=VisionRecipe)
    """How studies of kind vision learn to read digits in images."""
    costs: CostsRecipe = Field(default_factory=CostsRecipe)
    """At which lengths studies of kind architecture measure what a model costs."""
    recall: RecallRecipe = Field(default_factory=RecallRecipe)
    """How studies of kind recall learn to recall names, and at which distances they are asked."""
    execution: ExecutionRecipe = Field(default_factory=ExecutionRecipe)
    """Device, precision, threads."""

    @field_validator("model", mode="before")
    @classmethod
    def _preset_means_its_values(cls, given: Any) -> Any:
        return written_out(given)

    @model_validator(mode="after")
    def _families_exist(self) -> Self:
        _check_families("corpus.families", self.corpus.families, ALL_FAMILIES)
        _check_families("rl.families", self.rl.families, self.corpus.families)
        _check_families("rl.replay.families", self.rl.replay.families, self.corpus.families)
        _check_families("selection.families", self.selection.families, self.corpus.families)
        if self.rl.replay.weight and not self.rl.replay.families and set(self.rl.families) == set(self.corpus.families):
            raise ValueError("rl.replay.families is empty and RL trains every family, so there is nothing to replay; name families")
        return self

    @model_validator(mode="after")
    def _data_suffice(self) -> Self:
        plan, corpus = self.pretraining, self.corpus
        longest = max(plan.steps, plan.curve.steps if plan.curve.seeds else 0)
        if plan.batch * longest > corpus.pretrain_examples:
            raise ValueError(
                f"pretraining.batch {plan.batch} x {longest} steps need {plan.batch * longest} examples, "
                f"but corpus.pretrain_examples is {corpus.pretrain_examples}"
            )
        return self

    @model_validator(mode="after")
    def _prompts_suffice(self) -> Self:
        rl, there = self.rl, self.corpus.rl_tasks_per_family
        if rl.tasks_per_family is not None and rl.tasks_per_family > there:
            raise ValueError(f"rl.tasks_per_family {rl.tasks_per_family} exceeds corpus.rl_tasks_per_family {there}")
        name, each = ("corpus.rl_tasks_per_family", there) if rl.tasks_per_family is None else ("rl.tasks_per_family", rl.tasks_per_family)
        prompts = len(rl.families) * each
        if rl.groups > prompts:
            raise ValueError(
                f"rl.groups {rl.groups} exceeds the {prompts} prompts there are: {len(rl.families)} rl.families x {name} {each}"
            )
        return self

    @model_validator(mode="after")
    def _tied_gradient_exists(self) -> Self:
        if self.rl.tied_gradient == "head_only" and not self.model.tied:
            raise ValueError("rl.tied_gradient head_only means nothing with model.tied false: the head is no input embedding")
        return self

    @model_validator(mode="after")
    def _lengths_fit(self) -> Self:
        context = self.model.context
        for key, length in {
            "pretraining.sequence": self.pretraining.sequence,
            "rl.max_new_tokens": self.rl.max_new_tokens,
            "evaluation.max_new_tokens": self.evaluation.max_new_tokens,
        }.items():
            if length > context:
                raise ValueError(f"{key} {length} exceeds model.context {context}")
        for key, steps, every in (
            ("pretraining", self.pretraining.steps, self.pretraining.checkpoint_every),
            ("rl", self.rl.groups, self.rl.checkpoint_every),
        ):
            if steps // every > MOST_CHECKPOINTS:
                raise ValueError(f"{key}.checkpoint_every {every} would write more than {MOST_CHECKPOINTS} checkpoints")
        return self


class Config(Strict):
    """One run: where its results go, its recipes and its studies."""

    run: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)
    """Name of the run: results/<run>/ and reports/<run>/."""
    claims: str | None = Field(default=None, pattern=r"^[\w./-]+\.yaml$")
    """File of published claims to compare with, as seen from the Snakefile; none: this run replicates nothing."""
    recipes: dict[Name, Recipe] = Field(default_factory=lambda: {"main": Recipe()}, min_length=1)
    """Base recipes by name."""
    studies: dict[Name, Study] = Field(min_length=1)
    """Studies by name; the report opens with main, or else with the first of kind rl; `null` leaves out one that an earlier file names."""
    jobs_per_gpu: Positive = Field(default=1, exclude=True)
    """Jobs side by side on one CUDA device. Like `shared`, it changes no result: it is not recorded and reruns nothing."""
    shared: str | None = Field(default=None, exclude=True)
    """Folder in which corpora, pretraining and RL lie for all runs, checkouts and people that name it too; it must be there."""

    def rl_studies(self) -> tuple[str, ...]:
        """Return the studies of kind rl as reports list them: `main`, which stands in front, then the others by name."""
        # a job's config is canonical text with its keys sorted, so the order of the file is not known here
        return tuple(sorted((name for name, study in self.studies.items() if study.kind == "rl"), key=lambda name: (name != FRONT, name)))

    @model_validator(mode="after")
    def _studies_resolve(self) -> Self:
        for name, study in self.studies.items():
            if study.recipe not in self.recipes:
                raise ValueError(unknown(f"studies.{name}.recipe", study.recipe, self.recipes))
            self._check_study(f"studies.{name}", study)
        if all(study.kind != "rl" for study in self.studies.values()):
            raise ValueError("studies: none is of kind rl, and the report opens with one")
        return self

    def _check_study(self, key: str, study: Study) -> None:
        base = self.recipes[study.recipe]
        front = _checked(f"{key}.arms.{study.base}", base, study.arms[study.base])
        seen: dict[Recipe, str] = {}
        for name, arm in study.arms.items():
            recipe = _checked(f"{key}.arms.{name}", base, arm)
            if recipe in seen:
                raise ValueError(f"{key}.arms.{name} is the same recipe as {key}.arms.{seen[recipe]}; an arm must differ")
            seen[recipe] = name
            _check_sections(f"{key}.arms.{name}", study, arm)
            if study.kind == "rl":
                _check_analysis(f"{key}.analysis", study, recipe)
                if name == study.analysis.control and not recipe.rl.shuffle_rewards:
                    raise ValueError(f"{key}.analysis.control: arm {name} learns from its true rewards; give it rl.shuffle_rewards: true")
                _check_tasks(key, study, recipe)
                _check_comparable(key, study, name, front, recipe)
            elif study.kind == "pretraining":
                _check_expressions(f"{key}.arms.{name}", study, base, recipe)
            elif study.kind == "vision":
                _check_vision(f"{key}.arms.{name}", study, base, recipe)
            elif study.kind == "recall":
                _check_recall(f"{key}.arms.{name}", study, recipe)
            else:
                _check_architecture(key, study, recipe)
        if study.analysis.equal_rollouts:
            _check_rollouts(key, {name: recipe for recipe, name in seen.items()})


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` laid over it, dictionaries key by key, everything else replaced."""
    merged = dict(base)
    for key, value in changes.items():
        merged[key] = merge(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
    return merged


def apply(recipe: Recipe, arm: Arm) -> Recipe:
    """Return `recipe` with the changes of `arm`; raises pydantic's ValidationError where they do not fit."""
    merged = merge(recipe.model_dump(mode="json"), arm.overrides())
    return Recipe.model_validate_json(json.dumps(merged))


def resolve(config: Config, study: str, arm: str) -> Recipe:
    """Return the full recipe of one arm of one study."""
    plan = config.studies[study]
    return apply(config.recipes[plan.recipe], plan.arms[arm])


def changes(base: Recipe, other: Recipe) -> dict[str, Any]:
    """Return what `other` has where two recipes differ, by dotted key; a list counts as one value."""
    ours, theirs = (dict(_leaves(recipe.model_dump(mode="json"))) for recipe in (base, other))
    return {key: theirs[key] for key in ours if ours[key] != theirs[key]}


def _leaves(node: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _checked(key: str, base: Recipe, arm: Arm) -> Recipe:
    """Return the recipe of `arm`, which may change one value, or several if it says why."""
    try:
        recipe = apply(base, arm)
    except ValidationError as error:
        raise ValueError(sentence(error, Recipe, key)) from error
    changed = changes(base, recipe)
    if len(changed) > 1 and arm.several_changes is None:
        raise ValueError(f"{key} changes {len(changed)} values ({', '.join(changed)}); change one, or give several_changes: <why>")
    return recipe


def _check_families(key: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    for family in given:
        if family not in known:
            raise ValueError(unknown(f"{key}: family", family, known))
        if given.count(family) > 1:
            raise ValueError(f"{key}: family {family} is given twice")


def _check_analysis(key: str, study: Study, recipe: Recipe) -> None:
    _check_families(f"{key}.families", study.analysis.families, recipe.corpus.families)
    if study.analysis.metric == "pass8" and 8 not in recipe.evaluation.k:
        raise ValueError(f"{key}.metric pass8 needs 8 among evaluation.k, which is {list(recipe.evaluation.k)}")


def _check_tasks(key: str, study: Study, recipe: Recipe) -> None:
    there = getattr(recipe.corpus, f"{study.split}_tasks_per_family")
    if study.tasks_per_family is not None and study.tasks_per_family > there:
        raise ValueError(f"{key}.tasks_per_family {study.tasks_per_family} exceeds corpus.{study.split}_tasks_per_family {there}")


def _check_comparable(key: str, study: Study, arm: str, base: Recipe, recipe: Recipe) -> None:
    """Refuse an arm that meets other tasks than the base arm, or other rules: the scores of an rl study are compared task by task."""
    for section, name in (*ASKED, ("corpus", f"{study.split}_tasks_per_family")):
        if getattr(getattr(recipe, section), name) != getattr(getattr(base, section), name):
            raise ValueError(
                f"{key}.arms.{arm} changes {section}.{name}, but arms that are compared must meet the same tasks and be scored alike"
            )
    if not study.analysis.families and set(recipe.rl.families) != set(base.rl.families):
        raise ValueError(
            f"{key}.arms.{arm} trains other families than arm {study.base}; name those that are compared in {key}.analysis.families"
        )


def _check_rollouts(key: str, recipes: dict[str, Recipe]) -> None:
    budgets = {name: recipe.rl.rollouts for name, recipe in recipes.items()}
    if len(set(budgets.values())) > 1:
        each = ", ".join(f"{name} {rollouts}" for name, rollouts in budgets.items())
        means = f"make them equal, or leave the study out ({key.rpartition('.')[2]}: null)"
        raise ValueError(f"{key}.analysis.equal_rollouts: the arms draw different numbers of completions ({each}); {means}")


def _check_sections(key: str, study: Study, arm: Arm) -> None:
    """Refuse an arm that changes what its study does not read: it would be another name for the base recipe."""
    for section in arm.overrides():
        if section not in SECTIONS[study.kind]:
            if SECTIONS[study.kind] == ("model",):
                raise ValueError(f"{key} changes {section}, but the arms of a study of kind {study.kind} differ in their model alone")
            raise ValueError(f"{key} changes {section}, which a study of kind {study.kind} does not read")


def _check_expressions(key: str, study: Study, base: Recipe, recipe: Recipe) -> None:
    for name in SCORING:
        if getattr(recipe.expressions, name) != getattr(base.expressions, name):
            raise ValueError(f"{key} changes expressions.{name}, but arms that are compared must be scored alike")
    try:
        check_training(recipe.pretraining, recipe.expressions)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error
    _check_steps(key, study, "expressions.checkpoints", recipe.expressions.checkpoints)


def _check_vision(key: str, study: Study, base: Recipe, recipe: Recipe) -> None:
    """Refuse arms of unequal budget, and a sequence that the model cannot hold."""
    for name in SHARED:
        if getattr(recipe.vision, name) != getattr(base.vision, name):
            raise ValueError(
                f"{key} changes vision.{name}, but arms that are compared must have the same budget, images and scoring; "
                f"change it in the recipe of the study, or ask a study of its own with a recipe of its own"
            )
    if recipe.model.sparse == "indexed" or recipe.model.router == "sigmoid":
        raise ValueError(
            f"{key}: training on images teaches no indexer and balances no bias, so model.sparse must not be indexed, "
            f"nor model.router sigmoid"
        )
    if recipe.vision.length > recipe.model.context:
        raise ValueError(
            f"{key}: an image and vision.prompt take {recipe.vision.length} tokens, but model.context is {recipe.model.context}"
        )
    _check_steps(key, study, "vision.checkpoints", recipe.vision.checkpoints)


def _check_architecture(key: str, study: Study, recipe: Recipe) -> None:
    """Refuse a comparison at a step that pretraining does not reach."""
    last = recipe.pretraining.steps
    for name, contrast in study.analysis.contrasts.items():
        for label, steps in (("steps", contrast.steps), ("against_steps", contrast.against_steps or ())):
            beyond = [step for step in steps if step > last]
            if beyond:
                raise ValueError(f"{key}.analysis.contrasts.{name}.{label} {beyond} lie beyond the last step of pretraining, {last}")


def _check_recall(key: str, study: Study, recipe: Recipe) -> None:
    """Refuse texts that the model cannot hold."""
    if recipe.recall.longest > recipe.model.context:
        raise ValueError(f"{key}: a text of recall.stages has {recipe.recall.longest} bytes, but model.context is {recipe.model.context}")
    _check_steps(key, study, "recall.checkpoints", recipe.recall.checkpoints)


def _check_steps(key: str, study: Study, checkpoints: str, known: tuple[int, ...]) -> None:
    """Refuse a comparison at a step at which nothing is scored."""
    for name, contrast in study.analysis.contrasts.items():
        strange = [step for step in contrast.steps if step not in known]
        if strange:
            raise ValueError(f"{key}: analysis.contrasts.{name}.steps {strange} are not among {checkpoints} {list(known)}")
