"""Tasks as they are asked, by RL and by evaluation alike, and the columns that every judged answer has."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glint.files import read_parquet
from glint.tasks.tokenizer import decode
from glint.verify import Candidate, Verdict, is_complete, read_cases


@dataclass(frozen=True)
class Task:
    """One prompt and what decides about its completions."""

    index: int
    family: str
    identity: str
    argument: str
    prompt: str
    cases: str

    def candidate(self, ids: list[int]) -> Candidate:
        """Return the program that the prompt and `ids` make."""
        return Candidate(self.prompt.encode() + decode(ids), self.identity, self.argument, read_cases(self.cases))

    def is_complete(self, ids: list[int]) -> bool:
        """Return whether `ids` complete the wanted function."""
        return is_complete(self.prompt.encode() + decode(ids), self.identity, self.argument)


def read_tasks(examples: Path, split: str, families: tuple[str, ...], each: int | None = None) -> list[Task]:
    """Return the tasks of one split and of `families` (empty: all) in the order of the file, the first `each` a family (None: all)."""
    table = read_parquet(examples)
    table = table[(table["split"] == split) & (table["family"].isin(families) | (not families))]
    table = table if each is None else table.groupby("family", sort=False).head(each)
    columns = ["family", "identity", "argument", "prompt", "cases"]
    return [Task(index, *row) for index, row in enumerate(table[columns].itertuples(index=False, name=None))]


def judged(ids: list[int], ended: str, verdict: Verdict) -> dict[str, Any]:
    """Return the columns that every judged completion has."""
    return {
        "completion": decode(ids).decode(errors="backslashreplace"),
        "tokens": len(ids),
        "ended": ended,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "cases_passed": verdict.passed,
        "cases_total": verdict.total,
    }
