"""From a candidate to its verdict: policy, sandbox, and comparison here, where the expected values are."""

import json
import marshal
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Literal, Self

from glint.randomness import rng
from glint.tasks.families import family_named
from glint.verify import policy, values, worker
from glint.verify.pool import Ending, Limits, Pool, Request, VerifierError

PROPERTY_SEED = 0
LONGEST_SHOWN = 40

Outcome = tuple[Literal["passed", "failed", "invalid", "error"], str]
_FATES: dict[str, Outcome] = {
    "unforked": ("error", "no process could be started"),
    "overdue": ("failed", "time limit"),
    "flooded": ("failed", "output limit"),
}
_STATUSES: dict[int, Outcome] = {
    -signal.SIGPROF: ("failed", "time limit"),
    -signal.SIGXCPU: ("failed", "time limit"),
    -signal.SIGKILL: ("error", "the process was killed from outside"),
    worker.UNCONFINED: ("error", "the process could not be confined"),
}


@dataclass(frozen=True)
class Case:
    """One call: its argument and the value that it must return, both plain (see `values.encode`)."""

    argument: Any
    expected: Any

    @cached_property
    def texts(self) -> tuple[str, str]:
        """The expected value and the argument as text, which a right answer repeats."""
        return values.encode(self.expected), values.encode(self.argument)


@dataclass(frozen=True)
class Candidate:
    """A source that should define `function(argument)`, and the cases that decide about it."""

    source: bytes
    function: str
    argument: str
    cases: tuple[Case, ...]

    def __post_init__(self) -> None:
        if not self.cases:
            raise ValueError(f"no cases for {self.function}: nothing would decide about it")


@dataclass(frozen=True)
class Verdict:
    """What became of a candidate.

    `passed`: every case; `failed`: ran, but was wrong, crashed or went over a limit; `invalid`: was rejected before running;
    `error`: the sandbox failed, which says nothing about the candidate.
    """

    verdict: Literal["passed", "failed", "invalid", "error"]
    reason: str
    """The first thing that went wrong; empty where nothing did."""
    passed: int
    """Cases passed; 0 for a program stopped by a limit, whatever it had answered before."""
    total: int
    seconds: float
    """Wall time, for people; no result should depend on it."""


class Verifier:
    """Judges candidates in a sandbox, `workers` of them at a time; a context manager."""

    def __init__(self, workers: int = 4, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._pool = Pool(workers, self.limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.close()

    @property
    def walls(self) -> dict[str, str]:
        """Each wall of the sandbox, with an empty text where it stands, else with the reason why it does not."""
        return self._pool.walls

    def judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Return the verdicts in order.

        Raises:
            VerifierError: the sandbox failed twice for one candidate.

        """
        verdicts: dict[int, Verdict] = {}
        waiting = []
        for index, candidate in enumerate(candidates):
            rejection = _rejection(candidate)
            if rejection:
                verdicts[index] = rejection
            else:
                waiting.append(index)
        for _ in range(2):
            endings = self._pool.run([_request(candidates[index]) for index in waiting])
            verdicts |= {index: _verdict(candidates[index], ending) for index, ending in zip(waiting, endings, strict=True)}
            waiting = [index for index in waiting if verdicts[index].verdict == "error"]
        if waiting:
            raise VerifierError(f"the sandbox failed twice for {candidates[waiting[0]].function}: {verdicts[waiting[0]].reason}")
        return [verdicts[index] for index in range(len(candidates))]


def read_cases(text: str) -> tuple[Case, ...]:
    """Return the cases in the JSON text of the corpus' column `cases`."""
    return tuple(Case(**case) for case in json.loads(text))


def property_cases(family: str, function: str, count: int) -> tuple[Case, ...]:
    """Return `count` cases of the second judge for one task: edges and fresh inputs, answered by the reference, never rewarded."""
    asked = family_named(family)
    inputs = asked.property_inputs(rng(PROPERTY_SEED, "property", family, function), count)
    return tuple(Case(value, asked.reference(value)) for value in inputs)


def _rejection(candidate: Candidate) -> Verdict | None:
    start = time.perf_counter()
    try:
        policy.admit(candidate.source, candidate.function, candidate.argument)
    except policy.RejectedError as error:
        return Verdict("invalid", str(error), 0, len(candidate.cases), time.perf_counter() - start)
    return None


def _request(candidate: Candidate) -> Request:
    arguments = [marshal.dumps(case.argument) for case in candidate.cases]
    return Request(candidate.source.decode(), candidate.function, arguments)


def _verdict(candidate: Candidate, ending: Ending | None) -> Verdict:
    total = len(candidate.cases)
    if ending is None:
        return Verdict("error", "the sandbox process broke", 0, total, 0.0)
    if ending.lines and ending.lines[0].startswith("?"):
        return Verdict("invalid", f"syntax: {ending.lines[0][1:]}", 0, total, ending.seconds)
    if ending.lines is None or len(ending.lines) != total:
        verdict, reason = _without_answer(ending)
        return Verdict(verdict, reason, 0, total, ending.seconds)
    faults = [_fault(candidate, case, line) for case, line in zip(candidate.cases, ending.lines, strict=True)]
    wrong = [f"case {number}: {fault}" for number, fault in enumerate(faults, 1) if fault]
    return Verdict("failed" if wrong else "passed", wrong[0] if wrong else "", total - len(wrong), total, ending.seconds)


def _without_answer(ending: Ending) -> Outcome:
    """Return verdict and reason of a process that ended before its answer was whole."""
    crash: Outcome = ("failed", f"ended without an answer (status {ending.status})")
    return _FATES.get(ending.fate) or _STATUSES.get(ending.status) or crash


def _fault(candidate: Candidate, case: Case, line: str) -> str:
    """Return what is wrong with the answer of one case, or an empty text. Equal texts are values equal by exact type at every depth."""
    if line.startswith("!"):
        return "memory limit" if line == "!raised MemoryError" else line[1:]
    value, _, argument = line[1:].partition("\t")
    expected, before = case.texts
    if value != expected:
        return f"{candidate.function}({_shown(before)}) gave {_shown(value)}, not {_shown(expected)}"
    if argument != before:
        return f"changed its argument {_shown(before)} to {_shown(argument)}"
    return ""


def _shown(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."
