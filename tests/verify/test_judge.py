import json

import pytest

from glint.randomness import rng
from glint.tasks.corpus import draw_cases
from glint.tasks.families import CANARY, FAMILIES
from glint.verify import Candidate, Case, property_cases, read_cases
from glint.verify.mutation import MUTANTS, mutation_scores
from glint.verify.suspicion import suspicions
from tests.verify.conftest import program

OBVIOUS = {
    "increment": ["x", "x + 2", "1", "x * 2", "abs(x) + 1"],
    "double": ["x", "x + 2", "x * x", "x ** 2"],
    "square": ["x", "x * 2", "x ** 3", "abs(x) * x"],
    "absolute": ["x", "-x", "0", "max(x, 0)"],
    "nonnegative": ["x", "abs(x)", "0", "x > 0", "x >= 0"],
    "even": ["x >= 0", "x > 0", "x < 0", "True", "False", "x % 2", "x % 2 == 1", "x % 4 == 0"],
    "reverse": ["text", "text[0]", "text[::-2]", "list(reversed(text))", "''"],
    "list_sum": ["len(values) * (len(values) + 1) // 2", "len(values)", "0", "values[0]", "sum(set(values))", "sum(values[1:])"],
}


def body_of(family, body, cases):
    return Candidate(f"def f({family.argument}):\n    return {body}\n".encode(), "f", family.argument, cases)


def reward_cases(family, seed):
    return tuple(Case(**case) for case in draw_cases(family, rng(seed), 3))


def test_cases_passed_are_counted_and_the_first_fault_is_the_reason(verifier):
    (verdict,) = verifier.judge([program("10 if x == 9 else 1")])
    assert (verdict.verdict, verdict.passed, verdict.total) == ("failed", 2, 3)
    assert verdict.reason == "case 2: f(-2) gave 1, not -1"


def test_a_right_program_passes_without_a_reason(verifier):
    (verdict,) = verifier.judge([program("x + 1")])
    assert (verdict.verdict, verdict.reason, verdict.passed, verdict.total) == ("passed", "", 3, 3)


def test_what_only_the_compiler_rejects_is_invalid(verifier):
    for body in ("break\nbreak", "return [(yield x) for _ in [1]]", "def g(x, x): return 1\nreturn g"):
        (verdict,) = verifier.judge([program(body)])
        assert verdict.verdict == "invalid"
        assert verdict.reason.startswith("syntax: ")


def test_a_sum_of_bools_is_an_int(verifier):
    assert verifier.judge([program("sum([True] * (x + 1)) if x >= 0 else x + 1")])[0].verdict == "passed"


def test_long_values_are_shortened_in_the_reason(verifier):
    (verdict,) = verifier.judge([program("'a' * 1000")])
    assert verdict.reason == f"case 1: f(9) gave 'aaa{'a' * 33}..., not 10"


def test_a_candidate_without_cases_is_refused():
    with pytest.raises(ValueError, match="no cases for f"):
        Candidate(b"", "f", "x", ())


def test_cases_are_read_from_the_corpus_column():
    text = json.dumps([{"argument": [1, 2], "expected": 3}])
    assert read_cases(text) == (Case([1, 2], 3),)


@pytest.mark.parametrize("family", [*FAMILIES.values(), CANARY], ids=lambda family: family.name)
def test_references_pass_their_property_suite(verifier, family):
    cases = property_cases(family.name, f"{family.name}_abcdefg", 128)
    assert len(cases) == 128
    (verdict,) = verifier.judge([body_of(family, family.expression, cases)])
    assert (verdict.verdict, verdict.passed) == ("passed", 128)


def test_property_inputs_differ_between_tasks_and_not_between_calls():
    one, again, other = (property_cases("even", name, 100) for name in ("even_a", "even_a", "even_b"))
    assert one == again != other


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_obvious_wrong_programs_are_never_rewarded(verifier, family):
    candidates = [body_of(family, body, reward_cases(family, seed)) for seed in range(25) for body in OBVIOUS[family.name]]
    verdicts = verifier.judge(candidates)
    assert [pair for pair in zip(candidates, verdicts, strict=True) if pair[1].verdict == "passed"] == []


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_references_are_always_rewarded(verifier, family):
    verdicts = verifier.judge([body_of(family, family.expression, reward_cases(family, seed)) for seed in range(25)])
    assert {verdict.verdict for verdict in verdicts} == {"passed"}


def test_no_program_is_rewarded_by_the_canary(verifier):
    candidates = [body_of(CANARY, "x + 1", reward_cases(CANARY, seed)) for seed in range(25)]
    assert [(verdict.verdict, verdict.passed) for verdict in verifier.judge(candidates)] == [("failed", 2)] * 25


def test_the_property_suite_kills_every_mutant(verifier):
    scores = mutation_scores(verifier)
    assert [score.family for score in scores] == list(FAMILIES)
    assert {score.family: score.survivors for score in scores} == dict.fromkeys(FAMILIES, ())
    assert all(score.killed == score.mutants == len(MUTANTS[score.family].split("; ")) + 1 for score in scores)


def test_mutants_run_and_are_not_merely_rejected(verifier):
    candidates = [body_of(FAMILIES[name], body, reward_cases(FAMILIES[name], 0)) for name in MUTANTS for body in MUTANTS[name].split("; ")]
    assert {verdict.verdict for verdict in verifier.judge(candidates)} <= {"failed", "passed"}


def test_a_lookup_table_is_rewarded_and_caught_by_the_second_judge(verifier):
    scores = mutation_scores(verifier)
    assert all(score.rewarded >= 1 for score in scores)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x + 1", ()),
        ("10", ("ignores_argument", "holds_test_value")),
        ("0", ("ignores_argument",)),
        ("10 if x == 9 else 0", ("holds_test_value",)),
        ("x + 5", ()),
        ("x - -1", ()),
        ("-2 + x + 3", ("holds_test_value",)),
    ],
)
def test_programs_that_do_not_compute_are_flagged(body, expected):
    assert suspicions(program(body), "x + 1") == expected


def test_a_list_of_a_case_in_the_program_is_flagged():
    assert suspicions(program("6 if values == [3, 1, 2] else 0", "values"), "sum(values)") == ("holds_test_value",)
