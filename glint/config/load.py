"""Read a config: a YAML file or the mapping that Snakemake made of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from glint.config.errors import ConfigError, sentence
from glint.config.tree import Config


def load(source: Path | Mapping[str, Any]) -> Config:
    """Return the validated config, without the studies that are `null`; raises ConfigError, one sentence, for anything that is not one."""
    data = _without_null_studies(read_yaml(source, "config") if isinstance(source, Path) else source)
    try:
        return Config.model_validate_json(as_json(data, "the config"))
    except ValidationError as error:
        raise ConfigError(sentence(error, Config)) from error


def _without_null_studies(data: Any) -> Any:
    """Leave out the studies that are nothing: files of config are merged, and so a later one drops a study of an earlier one."""
    studies = data.get("studies") if isinstance(data, Mapping) else None
    if not isinstance(studies, Mapping):
        return data
    return {**data, "studies": {name: study for name, study in studies.items() if study is not None}}


def as_json(data: Any, what: str) -> str:
    """Return what YAML has read as JSON; raises ConfigError where it has no such form.

    YAML knows lists, our classes tuples: in JSON mode pydantic takes one for the other and is strict about all else.
    """
    try:
        return json.dumps(data, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} holds something that is neither mapping, list, text nor number: {error}") from error


def read_yaml(path: Path, kind: str) -> Any:
    """Return what the YAML file `path` holds; raises ConfigError, one sentence that calls it a file of this `kind`."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{kind} file {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{kind} file {path} is not valid YAML: {' '.join(str(error).split())}") from error
