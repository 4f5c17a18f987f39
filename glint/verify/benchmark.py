"""How many candidates a second pass the whole verifier, and what one hostile candidate costs its siblings."""

import resource
import time
from typing import Any

from glint.verify.judge import Candidate, Case, Verifier

GROUP = 16
ROUNDS = 40
CASES = (Case(3, 4), Case(-57, -56), Case(0, 1))


def measure() -> dict[str, Any]:
    """Return the row `verify`, of `ROUNDS` groups of 16 different short programs with 3 cases each.

    `cpu_seconds` and `wall_seconds` are for one group, all processes included. With one program in the group that never ends and is allowed
    `hostile_limit_seconds` of CPU time, the group takes `hostile_seconds` of wall time more, and its slowest other program
    `hostile_sibling_seconds` in all.
    """
    group = [_candidate(f"x + {number}") for number in range(GROUP)]
    before = _cpu_seconds()
    with Verifier() as verifier:
        verifier.judge(group)
        start = time.perf_counter()
        verifier.judge(group * ROUNDS)
        wall = (time.perf_counter() - start) / ROUNDS
    cpu = (_cpu_seconds() - before) / (ROUNDS + 1)
    with Verifier() as verifier:
        verifier.judge(group)
        start = time.perf_counter()
        _, *siblings = verifier.judge([_candidate("9 ** 9 ** 9"), *group[1:]])
        hostile = time.perf_counter() - start
    return {
        "name": "verify",
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "candidates_per_second": GROUP / wall,
        "hostile_seconds": hostile - wall,
        "hostile_sibling_seconds": max(sibling.seconds for sibling in siblings),
        "hostile_limit_seconds": verifier.limits.cpu_seconds,
    }


def _candidate(body: str) -> Candidate:
    return Candidate(
        f"# Return the number after x.\ndef increment_benches(x):\n    return {body}\n".encode(), "increment_benches", "x", CASES
    )


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
