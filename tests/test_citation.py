"""CITATION.cff and CHANGELOG.md agree with the package."""

import re
import tomllib
from pathlib import Path

import jsonschema
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
TEXT = {"type": "string", "minLength": 1}
SCHEMA = {
    "type": "object",
    "required": ["cff-version", "message", "title", "authors"],
    "additionalProperties": False,
    "properties": {
        **dict.fromkeys(("message", "title", "abstract", "version", "license"), TEXT),
        "cff-version": {"const": "1.2.0"},
        "type": {"enum": ["software", "dataset"]},
        "date-released": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        "keywords": {"type": "array", "items": TEXT, "minItems": 1, "uniqueItems": True},
        "authors": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["name"], "properties": {"name": TEXT}}},
    },
}
"""The keys used, as the Citation File Format 1.2.0 has them."""
CHANGES = (ROOT / "CHANGELOG.md").read_text()


def test_the_citation_file_follows_its_format():
    jsonschema.validate(CITATION | {"date-released": str(CITATION["date-released"])}, SCHEMA)


def test_the_citation_is_of_this_version_and_licence():
    assert CITATION["version"] == PROJECT["version"]
    assert CITATION["license"].lower() == "mit" == PROJECT["license"].lower()


def test_the_changelog_begins_with_what_is_unreleased_and_has_this_version():
    assert re.findall(r"^## \[([\w.]+)\]", CHANGES, re.MULTILINE)[:2] == ["Unreleased", PROJECT["version"]]
    assert f"## [{PROJECT['version']}] - {CITATION['date-released']}\n" in CHANGES
    assert set(re.findall(r"^### (.+)$", CHANGES, re.MULTILINE)) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
