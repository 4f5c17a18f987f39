"""The lists of packages agree with one another."""

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DIRECT = [Requirement(line) for line in [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]]


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


LOCK = {plain(name): pin for name, pin in re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)}


def test_every_direct_dependency_is_pinned_within_its_range():
    for wanted in DIRECT:
        assert wanted.specifier.contains(LOCK[plain(wanted.name)]), wanted


def test_every_direct_dependency_has_its_reason():
    explained = {
        plain(name)
        for row in re.findall(r"^\| ([\w, -]+) \|", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE)
        for name in row.split(", ")
    }
    assert {plain(wanted.name) for wanted in DIRECT} == explained - {"package", "---"}


def test_what_is_installed_is_what_is_pinned():
    assert {name: version(name).partition("+")[0] for name in LOCK} == LOCK


def test_conda_takes_the_lock_and_the_same_pythons():
    python, _, packages = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert packages == {"pip": ["--requirement requirements.lock"]}
    asked = SpecifierSet(python.removeprefix("python "))
    assert asked == SpecifierSet(PROJECT["project"]["requires-python"])
    assert ".".join(map(str, sys.version_info[:3])) in asked


def test_the_container_has_a_supported_python_the_locks_and_files_that_exist():
    recipe = (ROOT / "container/Dockerfile").read_text()
    (python,) = re.findall(r"^FROM python:(\S+)-slim$", recipe, re.MULTILINE)
    assert f"{python}.0" in SpecifierSet(PROJECT["project"]["requires-python"])
    sources = [name for line in re.findall(r"^COPY (.+)$", recipe, re.MULTILINE) for name in line.split()[:-1]]
    assert {"requirements.lock", "requirements-cluster.lock", "Snakefile", "glint"} < set(sources)
    assert [name for name in sources if not (ROOT / name).exists()] == []
