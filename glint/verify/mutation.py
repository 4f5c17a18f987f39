"""Wrong programs that the property suite must tell from right ones: the suite is worth what it rejects."""

from collections.abc import Sequence
from typing import NamedTuple

from glint.randomness import rng
from glint.tasks.corpus import draw_cases
from glint.tasks.families import FAMILIES, Family
from glint.verify.judge import Candidate, Case, Verifier, property_cases

MUTANTS = {
    "increment": "x; x + 2; x - 1; x * 2; -x; 1; abs(x) + 1; x + 1.0; x + 1 if x > 0 else x; x + 1 if x else 0; x + x // x; str(x + 1)",
    "double": "x; x + 2; x * x; x * 3; x ** 2; 2; 0; abs(x) * 2; x * 2.0; x * -2; x * 2 if x > 0 else x; [x, x]; str(x) * 2",
    "square": "x; x + x; x * 2; x ** 3; x * abs(x); -x * x; 1; x * x * 1.0; abs(x); x * x if x > 0 else 0; x ** x % 7",
    "absolute": "x; -x; x * x; max(x, 0); 0; 1; x >= 0; float(abs(x)); -x if x < -1 else x; x if x < 0 else -x; x % 100; str(x)",
    "nonnegative": "x; abs(x); x > 0; x >= 0; 0; 1; max(x, 1); min(x, 0); x if x > 1 else 0; x if x > 0 else -x; "
    "float(max(x, 0)); [x][:x > 0]",
    "even": "x >= 0; x > 0; x < 0; x % 2; x % 2 == 1; True; False; x % 4 == 0; 1 - x % 2; x == 0; not x; x % 3 == 0; x % 2 == 0 and x > 0; "
    "x % 2 == 0 or x < 0; x % 2 == 0 and x < 100; x // 2",
    "reverse": "text; ''; text[0]; text[-1]; text[::-2]; text[:0:-1]; text[1:][::-1]; text[::-1].lower(); text[::-1].strip(); "
    "text[::-1][:9]; ''.join(sorted(text)); ''.join(sorted(text, reverse=True)); list(reversed(text)); reversed(text); "
    "text[-1] + text[1:-1] + text[0]",
    "list_sum": "len(values) * (len(values) + 1) // 2; len(values); max(values); values[0]; values[0] + values[-1]; 0; sum(values) + 1; "
    "sum(values[1:]); sum(values[:-1]); sum(values[:3]); sum(set(values)); sum(map(abs, values)); sum(v for v in values if v > 0); "
    "float(sum(values)); values; sum(values) % 100",
}
"""Expressions over the family's argument, none of them right."""


class Score(NamedTuple):
    """What became of the mutants of one family."""

    family: str
    mutants: int
    killed: int
    """Mutants that the property suite rejects; all of them, or the suite is too weak."""
    rewarded: int
    """Mutants that the reward cases of the same task let pass."""
    survivors: tuple[str, ...]
    """Bodies that the property suite did not reject."""


def mutation_scores(verifier: Verifier, reward_count: int = 3, property_count: int = 128) -> list[Score]:
    """Return the score of every family, on one task each."""
    return [_score(verifier, family, reward_count, property_count) for family in FAMILIES.values()]


def _score(verifier: Verifier, family: Family, reward_count: int, property_count: int) -> Score:
    function = f"{family.name}_mutants"
    rewards = tuple(Case(**case) for case in draw_cases(family, rng(0, "mutation", family.name), reward_count))
    bodies = [*MUTANTS[family.name].split("; "), lookup_table(family.argument, rewards)]
    properties = property_cases(family.name, function, property_count)
    survived, rewarded = (_passing(verifier, bodies, function, family.argument, cases) for cases in (properties, rewards))
    return Score(family.name, len(bodies), len(bodies) - len(survived), len(rewarded), survived)


def _passing(verifier: Verifier, bodies: Sequence[str], function: str, argument: str, cases: tuple[Case, ...]) -> tuple[str, ...]:
    candidates = [Candidate(f"def {function}({argument}):\n    return {body}\n".encode(), function, argument, cases) for body in bodies]
    return tuple(body for body, verdict in zip(bodies, verifier.judge(candidates), strict=True) if verdict.verdict == "passed")


def lookup_table(argument: str, cases: Sequence[Case]) -> str:
    """Return an expression that knows the answers of `cases` by heart, and no others."""
    known = [f"{case.expected!r} if {argument} == {case.argument!r} else " for case in cases]
    return "".join(known) + repr(cases[0].expected)
