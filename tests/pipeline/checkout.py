"""A copy of this checkout in which a test runs Snakemake."""

import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

from tests.pipeline import engine

ROOT = Path(__file__).parents[2]
TIMED = ("timings.csv", "architecture_arms.csv", "costs.csv", "costs_speed.csv", "costs.svg")
"""Tables with times and the figure drawn from them, which no two runs have in common."""
CODE = ("Snakefile", "glint", "rules", "workflow", "profiles", "config", "package-lock.json")


class Checkout:
    """A folder with the code of this project, a config, and perhaps results."""

    def __init__(self, path: Path):
        self.path = path
        self.config = "tiny.yaml"

    @classmethod
    def fresh(cls, path: Path) -> "Checkout":
        """Copy the code and the tiny config into the new folder `path`."""
        ignored = shutil.ignore_patterns("*.pyc")  # what Numba has compiled is copied: it holds for files of the same date
        path.mkdir(parents=True)
        for name in CODE:
            source = ROOT / name
            shutil.copytree(source, path / name, ignore=ignored) if source.is_dir() else shutil.copy2(source, path / name)
        shutil.copy2(ROOT / "tests/pipeline/tiny.yaml", path / "tiny.yaml")
        (path / "node_modules").symlink_to(ROOT / "node_modules")
        return cls(path)

    def take_compiled_loops(self) -> None:
        """Copy what Numba has compiled for the code here since this checkout was made."""
        loops = "glint/model/__pycache__"
        shutil.copytree(ROOT / loops, self.path / loops, ignore=shutil.ignore_patterns("*.pyc"), dirs_exist_ok=True)

    def copy(self, path: Path) -> "Checkout":
        """Return a copy with everything in it, file dates included."""
        shutil.copytree(self.path, path, symlinks=True)
        return Checkout(path)

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of Snakemake on this checkout's config."""
        return [sys.executable, "-m", "snakemake", "--configfile", self.config, *arguments]

    def snakemake(self, *arguments: str, succeeds: bool = True) -> str:
        """Run Snakemake and return all that it prints; its success must be as told."""
        status, text = engine.snakemake(["--configfile", self.config, *arguments], self.path, environment())
        assert (status == 0) == succeeds, text
        return text

    def planned(self, *arguments: str) -> Counter[str]:
        """Return how many jobs of each rule a dry run would start."""
        text = self.snakemake("--dry-run", *arguments)
        if "Nothing to be done" in text:
            return Counter()
        table = text.partition("Job stats:")[2].partition("total")[0]
        return Counter({rule: int(count) for rule, count in re.findall(r"^(\w+)\s+(\d+)$", table, re.MULTILINE) if rule != "all"})

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace `old`, which must be there, by `new` in a file."""
        path = self.path / name
        text = path.read_text()
        assert old in text, f"{name} has no {old!r}"
        path.write_text(text.replace(old, new, 1))

    def results(self) -> dict[str, bytes]:
        """Return the bytes of everything that two equal runs must have equal: weights, completions, tables, figures, cards."""
        kinds = ("*.safetensors", "*.parquet", "selection.json", "recipe.json", "*.svg", "*.csv", "*.png", "*.md")
        files = [path for kind in kinds for top in ("results", "reports") for path in (self.path / top).rglob(kind)]
        return {str(path.relative_to(self.path)): path.read_bytes() for path in files if path.name not in TIMED}


def environment() -> dict[str, str]:
    """Return this environment without the modules' path, so that a checkout runs its own code."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
