"""The config's JSON schema and its documented table, both made from the classes."""

import json
from typing import Any

from pydantic import BaseModel

from glint.config.corpus import CorpusRecipe
from glint.config.costs import CostsRecipe
from glint.config.evaluation import EvaluationRecipe
from glint.config.execution import ExecutionRecipe
from glint.config.expressions import ExpressionsRecipe
from glint.config.model import PRESETS, ModelRecipe
from glint.config.pretraining import CurveRecipe, PretrainingRecipe
from glint.config.recall import RecallRecipe, StageRecipe
from glint.config.rl import KLRecipe, ReplayRecipe, RewardRecipe, RLRecipe
from glint.config.selection import SelectionRecipe
from glint.config.study import Analysis, Arm, Contrast, Study
from glint.config.tree import Config, Recipe
from glint.config.vision import VisionRecipe

SECTIONS: dict[str, type[BaseModel]] = {
    "(top)": Config,
    "studies.NAME": Study,
    "studies.NAME.arms.NAME": Arm,
    "studies.NAME.analysis": Analysis,
    "studies.NAME.analysis.contrasts.NAME": Contrast,
    "recipes.NAME": Recipe,
    "recipes.NAME.model": ModelRecipe,
    "recipes.NAME.corpus": CorpusRecipe,
    "recipes.NAME.pretraining": PretrainingRecipe,
    "recipes.NAME.pretraining.curve": CurveRecipe,
    "recipes.NAME.selection": SelectionRecipe,
    "recipes.NAME.rl": RLRecipe,
    "recipes.NAME.rl.reward": RewardRecipe,
    "recipes.NAME.rl.kl": KLRecipe,
    "recipes.NAME.rl.replay": ReplayRecipe,
    "recipes.NAME.evaluation": EvaluationRecipe,
    "recipes.NAME.expressions": ExpressionsRecipe,
    "recipes.NAME.vision": VisionRecipe,
    "recipes.NAME.costs": CostsRecipe,
    "recipes.NAME.recall": RecallRecipe,
    "recipes.NAME.recall.stages": StageRecipe,
    "recipes.NAME.execution": ExecutionRecipe,
}
WORDS = {
    "integer": "whole number",
    "array": "list",
    "object": "section",
    "string": "text",
    "boolean": "`true` \\| `false`",
    "null": "nothing",
}


def schema() -> str:
    """Return the JSON schema of a config file, for editors.

    An arm's sections are recipes, of which every key may be left out; a study may be null, which leaves it out; the name of a preset
    stands for a model, or among its keys for the others.
    """
    tree = Config.model_json_schema()
    by_name = tree["properties"]["studies"]["patternProperties"]
    by_name |= {pattern: {"if": {"type": "null"}, "else": study} for pattern, study in by_name.items()}
    arm = tree["$defs"]["Arm"]["properties"]
    for name, node in tree["$defs"]["Recipe"]["properties"].items():
        if name in arm:
            arm[name] = {"$ref": node["$ref"], "description": arm[name]["description"]}
    preset = {"enum": list(PRESETS), "type": "string", "description": "Preset whose values the keys have that are not written."}
    tree["$defs"]["ModelRecipe"]["properties"]["preset"] = preset
    for section in (arm, tree["$defs"]["Recipe"]["properties"]):
        section["model"] = {"anyOf": [{"enum": list(PRESETS)}, section["model"]]}
    return json.dumps(tree, indent=1, sort_keys=True) + "\n"


def table() -> str:
    """Return a Markdown table a section: key, allowed values, default, meaning."""
    return "\n\n".join(_section(key, node) for key, node in SECTIONS.items()) + "\n"


def _section(key: str, node: type[BaseModel]) -> str:
    properties = node.model_json_schema()["properties"]
    rows = [
        f"| `{name}` | {_allowed(value)} | {_default(node, name)} | {_cell(node.model_fields[name].description)} |"
        for name, value in properties.items()
    ]
    about = " ".join((node.__doc__ or "").split())
    return "\n".join([f"### `{key}`", "", about, "", "| key | allowed | default | meaning |", "|---|---|---|---|", *rows])


def _allowed(value: dict[str, Any]) -> str:
    """Return what a value may be, in a few words."""
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return " \\| ".join(f"`{choice}`" for choice in value["enum"])
    if "anyOf" in value:
        return " or ".join(_allowed(choice) for choice in value["anyOf"])
    if "$ref" in value:
        return "section"
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {value[name]}" for name, sign in bounds.items() if name in value and abs(value[name]) < 10**9]
    items = f" of {_allowed(value['items'])}" if isinstance(value.get("items"), dict) else ""
    return " ".join([WORDS.get(value["type"], value["type"]) + items, *limits])


def _default(node: type[BaseModel], name: str) -> str:
    field = node.model_fields[name]
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or (isinstance(value, dict) and value):
        return "see its section"
    return f"`{json.dumps(value, default=BaseModel.model_dump)}`"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
