"""Turn a failed validation into one sentence that names the key, the value and what is allowed."""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

PLAIN = {"a valid integer": "a whole number", "a valid array": "a list", "an object": "a mapping (key: value)", "a valid string": "text"}
"""Pydantic's words for what a value should be, and those of config/README.md."""


class ConfigError(ValueError):
    """A config that cannot be run; its message is one sentence for a person."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the hint "; did you mean ...?" for the known word most like `word`, or nothing if none is."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Return the sentence for a `word` that is none of the `known` ones."""
    names = list(known)
    return f"{what} {word} is unknown{nearest(word, names) or ';'} allowed: {', '.join(names)}"


def sentence(error: ValidationError, root: type[BaseModel], prefix: str = "") -> str:
    """Return one sentence on the first problem of `error`, raised while validating `root`, whose keys stand under `prefix`."""
    problems = error.errors()
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return _explain(first, root, prefix) + more


def _explain(problem: ErrorDetails, root: type[BaseModel], prefix: str) -> str:
    location, given = problem["loc"], problem["input"]
    key = _dotted(prefix, location)
    message = problem["msg"]
    match problem["type"]:
        case "extra_forbidden":
            known = _node(root, location[:-1]).model_fields
            hint = nearest(str(location[-1]), known) or _elsewhere(root, str(location[-1])) or ";"
            return f"key {key} is unknown{hint} allowed: {', '.join(known)}"
        case "missing":
            return f"{key} is missing"
        case "value_error":
            text = message.removeprefix("Value error, ")
            return f"{key}: {text}" if key else text
        case "json_invalid":
            return f"the config cannot be read: {message[0].lower()}{message[1:]}"
    asked = re.sub(r"^(Input|String|Dictionary|Tuple|Value) should", "should", message)
    for jargon, plain in PLAIN.items():
        asked = asked.replace(jargon, plain)
    return f"{key or 'the config'} {asked}, not {_shown(given)}{_hint(given, asked)}"


def _hint(given: object, asked: str) -> str:
    """Explain the common slips: a number that arrived as text, one value where a list is asked, and a misspelt choice."""
    if "a list" in asked:
        return " (a list stands in brackets: [1, 2])"
    if not isinstance(given, str):
        return ""
    if "number" in asked and re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", given, re.IGNORECASE):
        return " (it is text: YAML reads 1e-3 as text, write 1.0e-3)" if "e" in given.lower() else " (it is text: write it without quotes)"
    return nearest(given, re.findall(r"'(\w+)'", asked))


def _elsewhere(root: type[BaseModel], key: str) -> str:
    """Return the hint "; it belongs in ..." for a key of other sections, or nothing if none has it."""
    homes = [home.removeprefix("recipes.NAME.") for home in _homes(root, key)]
    return f"; it belongs in {' or '.join(homes)};" if homes else ""


def _homes(node: Any, key: str, at: str = "") -> Iterator[str]:
    """Yield the section, dotted, of every model in and under `node`, which stands `at`, that has the field `key`."""
    if isinstance(node, type) and issubclass(node, BaseModel):
        if key in node.model_fields and at:
            yield at.removeprefix(".")
        for name, field in node.model_fields.items():
            yield from _homes(field.annotation, key, f"{at}.{name}")
    elif get_origin(node) is dict:
        yield from _homes(get_args(node)[1], key, f"{at}.NAME")


def _node(root: Any, location: tuple[int | str, ...]) -> Any:
    """Follow `location` from the model `root` down to the model it names."""
    node = root
    for part in location:
        if isinstance(node, type) and issubclass(node, BaseModel):
            node = node.model_fields[str(part)].annotation
        else:
            node = get_args(node)[-1 if get_origin(node) is dict else 0]
    return node


def _dotted(prefix: str, location: tuple[int | str, ...]) -> str:
    text = prefix
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if part.isprintable() else f".{part!a}"
    return text.removeprefix(".")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
