"""Fingerprints of code: what a script and the project's modules in its import closure do, whatever their layout and comments.

A hash is taken over syntax trees: comments, docstrings, formatting, dates and branches change nothing, while an edit of any statement
that a script can reach changes exactly the scripts that reach it.
"""

import ast
import contextlib
import functools
import hashlib
import json
import os
import sys
from pathlib import Path

import grimp

PACKAGES = ("glint", "pipeline")


class Code:
    """The project's code below one root folder, with `glint/` and `workflow/pipeline/`; both must be importable."""

    def __init__(self, root: Path, memory: Path | None = None):
        """`memory` is a file that keeps the hashes of trees for the next command; it may be deleted at any time."""
        self.folders = {"glint": root, "pipeline": root / "workflow"}
        self.trees = Trees(memory)
        self.graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)

    @functools.cache  # noqa: B019 - a Code lives as long as the process
    def fingerprint(self, script: Path, unused: frozenset[str] = frozenset()) -> str:
        """Return the hash of `script` and of every project module that running it imports; Python's minor version counts too.

        Modules in `unused` are imported, but nothing in them runs: neither they nor what they alone import counts.
        """
        parts = [f"python {sys.version_info.major}.{sys.version_info.minor}", self.trees.hash_of(script)]
        parts += [f"{module} {self._module_hash(module)}" for module in sorted(self.closure(script, unused))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def closure(self, script: Path, unused: frozenset[str] = frozenset()) -> set[str]:
        """Return the project modules that `script` imports, directly or not, with the packages that hold them, without `unused`."""
        pending = (_imports(script) & self.graph.modules) - unused
        found: set[str] = set()
        while pending:
            module = pending.pop()
            found.add(module)
            parents = {module.rpartition(".")[0]} - {""}
            pending |= (self.graph.find_modules_directly_imported_by(module) | parents) - found - unused
        return found

    @functools.cache  # noqa: B019 - a Code lives as long as the process
    def _module_hash(self, module: str) -> str:
        base = self.folders[module.partition(".")[0]].joinpath(*module.split("."))
        package = base / "__init__.py"
        if not package.exists():
            return self.trees.hash_of(base.with_suffix(".py"))
        return self.trees.hash_of(package) + "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in _data_files(base))


class Trees:
    """Hashes of syntax trees, known again by the hash of the source: taking them all anew would cost every command a third of a second."""

    def __init__(self, memory: Path | None):
        self.memory = memory
        self.known: dict[str, str] = {}
        if memory is not None and memory.exists():
            with contextlib.suppress(ValueError):  # a damaged memory is none
                self.known = json.loads(memory.read_text())
        self.used: dict[str, str] = {}

    def hash_of(self, path: Path) -> str:
        """Return the hash of the syntax tree of `path`."""
        source = path.read_bytes()
        key = f"{sys.version_info.major}.{sys.version_info.minor} {hashlib.sha256(source).hexdigest()}"
        if key not in self.used:
            self.used[key] = self.known.get(key) or tree_hash(source)
        return self.used[key]

    def remember(self) -> None:
        """Write the hashes that this command has used, where they are not there already."""
        if self.memory is not None and self.used != self.known:
            self.memory.parent.mkdir(parents=True, exist_ok=True)
            whole = self.memory.with_name(f"{self.memory.name}.{os.getpid()}")
            whole.write_text(json.dumps(self.used))
            whole.replace(self.memory)


def tree_hash(source: bytes) -> str:
    """Return the hash of the syntax tree of `source` without its bare strings (docstrings)."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                setattr(node, name, [statement for statement in statements if not _is_bare_string(statement)])
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def command_hash(command: str) -> str:
    """Return the hash of a shell command, whatever its white space."""
    return hashlib.sha256(" ".join(command.split()).encode()).hexdigest()[:16]


def _is_bare_string(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)


def _imports(script: Path) -> set[str]:
    """Return every name that an import statement of `script` may load as a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(script.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return names


def _data_files(package: Path) -> list[Path]:
    """Return the files that a package reads beside its modules (templates), with those in folders that are no packages."""
    found = []
    for entry in sorted(package.iterdir()):
        if entry.is_file() and entry.suffix != ".py":
            found.append(entry)
        elif entry.is_dir() and entry.name != "__pycache__" and not (entry / "__init__.py").exists():
            found += sorted(path for path in entry.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return found
