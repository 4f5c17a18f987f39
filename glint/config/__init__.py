"""The config tree: the only source of defaults, of the JSON schema and of the documented table."""

from glint.config.base import canonical_json, digest
from glint.config.study import Study
from glint.config.tree import Config, Recipe, resolve

__all__ = ["Config", "Recipe", "Study", "canonical_json", "digest", "resolve"]
