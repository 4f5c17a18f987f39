"""The whole config: recipes, studies, and the resolution of an arm into one recipe."""

import json
from typing import Any, Self

from pydantic import Field, model_validator

from glint.config.base import Strict
from glint.config.corpus import CorpusRecipe
from glint.config.evaluation import EvaluationRecipe
from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe
from glint.config.pretraining import PretrainingRecipe
from glint.config.rl import RLRecipe
from glint.config.selection import SelectionRecipe
from glint.config.study import Arm, Study


class Recipe(Strict):
    """Everything that decides the outcome of one training seed."""

    model: ModelRecipe = Field(default_factory=ModelRecipe)
    """Sizes of the network."""
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
    execution: ExecutionRecipe = Field(default_factory=ExecutionRecipe)
    """Device, precision, threads."""

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        # cross-section checks: families known, batch * steps within the corpus, rl groups within the tasks
        return self


class Config(Strict):
    """One run: where its results go, its recipes and its studies."""

    run: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    """Name of the run: results/<run>/ and reports/<run>/."""
    recipes: dict[str, Recipe] = Field(default_factory=lambda: {"main": Recipe()}, min_length=1)
    """Base recipes by name."""
    studies: dict[str, Study] = Field(min_length=1)
    """Studies by name."""


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
