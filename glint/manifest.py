"""The manifest: which file plays which role for which arm and seed."""

from pathlib import Path
from typing import Literal, Self

from pydantic import TypeAdapter

from glint.config.base import Seed, Strict

Role = Literal[
    "examples",
    "pretrain_metrics",
    "pretrain_receipt",
    "pretrain_dev",
    "selection",
    "rl_metrics",
    "rl_receipt",
    "rollouts",
    "rl_dev",
    "before",
    "after",
    "before_canary",
    "after_canary",
    "pretrain_dev_receipt",
    "rl_dev_receipt",
    "before_receipt",
    "after_receipt",
    "expressions_receipt",
    "expression_scores",
    "expression_completions",
    "vision_predictions",
    "vision_receipt",
    "loss",
    "loss_receipt",
    "costs",
    "costs_receipt",
    "recall_predictions",
    "recall_receipt",
    "trace_next_bytes",
    "trace_routing",
    "trace_random",
]


class Entry(Strict):
    """One file of one seed; a null path says that the seed did not get that far."""

    study: str
    arm: str
    seed: Seed
    role: Role
    path: str | None


class Manifest:
    """Lookup by study, arm, seed and role."""

    def __init__(self, entries: list[Entry]):
        self.entries = entries
        self._paths = {(entry.study, entry.arm, entry.seed, entry.role): entry.path for entry in entries}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a JSON list of entries; raises pydantic's ValidationError where one does not fit."""
        return cls(TypeAdapter(list[Entry]).validate_json(path.read_bytes()))

    def path(self, study: str, arm: str, seed: int, role: Role) -> Path | None:
        """Return the file of that role, or None where the seed has none."""
        path = self._paths.get((study, arm, seed, role))
        return None if path is None else Path(path)

    def distinct(self, role: Role) -> list[tuple[Entry, Path]]:
        """Return each file of that role once, with the first entry that names it: arms share their pretraining."""
        first: dict[str, Entry] = {}
        for entry in self.entries:
            if entry.role == role and entry.path is not None:
                first.setdefault(entry.path, entry)
        return [(entry, Path(path)) for path, entry in first.items()]
