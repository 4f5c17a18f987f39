"""No number of a page is typed into it: templates and the modules behind them hold none but those of definitions."""

import ast
import re
from pathlib import Path

import pytest
from jinja2 import Environment

from glint import report

FOLDER = Path(report.__file__).parent
DRAWINGS = {"slides/data.html", "slides/model.html"}
"""Templates with the coordinates of drawings, which the tests of the slides look through."""
TEMPLATES = sorted({str(path.relative_to(FOLDER / "templates")) for path in (FOLDER / "templates").rglob("*.html")} - DRAWINGS)
MODULES = (
    "architecture.py",
    "contrasts.py",
    "costs.py",
    "explorer.py",
    "findings.py",
    "honesty.py",
    "page.py",
    "recall.py",
    "rivals.py",
    "share_image.py",
    "slides.py",
    "summary.py",
    "tables.py",
    "vision.py",
)
DEFINITIONS = {
    "120": "all structures with at least two different operations",
    "(1 is the brightest)": "a scale",
    "at temperature 1,": "the model's own probabilities",
    "This run has 0 ": "said of studies that a run does not have",
    "32 x 32": "pixels of an image",
    "FLOPs (6 an active parameter": "the formula by which they are counted",
    "10¹²": "a unit",
}
"""Literals with digits that a page may hold, and what they are."""
MARKUP = r"</?h[1-6]\b|initial-scale=1|tabindex=\"-?\d\"|&#?\w+;|%\.?\d?[gf]|\{:,\.\df\}|utf-8|sha256-|(?:min|max|value)=\"0\""


def literals(template):
    """Return the text of a template that no expression makes: what stands between expressions, and the strings inside them."""
    tokens = Environment().lex((FOLDER / "templates" / template).read_text())
    return [value for _, kind, value in tokens if kind in ("data", "string")]


def strings(module):
    """Return the strings of a module that may be shown: no docstrings, no format specifications, no keys of tables."""
    tree = ast.parse((FOLDER / module).read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    formats = (node.format_spec for node in ast.walk(tree) if isinstance(node, ast.FormattedValue) and node.format_spec)
    specs = {id(part) for one in formats for part in ast.walk(one)}
    strings = ((id(node), node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [text for place, text in strings if place not in documentation | specs and not re.fullmatch(r"\w+", text)]


def typed_numbers(texts):
    """Return the texts that hold digits of another kind than markup and definitions."""
    found = []
    for text in texts:
        rest = re.sub(MARKUP, "", text)
        for known in DEFINITIONS:
            rest = rest.replace(known, "")
        found += [rest] if re.search(r"\d", rest) else []
    return found


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_holds_no_number(template):
    assert typed_numbers(literals(template)) == []


@pytest.mark.parametrize("module", MODULES)
def test_what_a_module_words_holds_no_number(module):
    assert typed_numbers(strings(module)) == []


def test_a_typed_number_would_be_found():
    assert typed_numbers(["<h2>Gain</h2>", "a gain of 42.5 points", "%.3g"]) == ["a gain of 42.5 points"]
