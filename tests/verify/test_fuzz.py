"""Random bytes and random syntax trees: never a hang, never a crash of the parent, never a pass for a program that is wrong."""

import warnings

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from glint.verify import is_complete
from tests.verify.conftest import CASES, program, whole

calm = settings(
    deadline=None, derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
VERDICTS = {"passed", "failed", "invalid"}


@calm
@given(st.lists(st.binary(max_size=80), min_size=1, max_size=8))
def test_random_bytes_get_a_verdict(verifier, sources):
    for start in (b"", b"def f(x):\n", b"def f(x):\n    return "):
        verdicts = verifier.judge([whole(start + source) for source in sources])
        assert {verdict.verdict for verdict in verdicts} <= VERDICTS


@calm
@given(st.lists(st.text("x +-*/%01=()[]:,.\n_'\"defintlamr{}", max_size=30), min_size=1, max_size=8))
def test_random_program_text_passes_only_if_it_is_right(verifier, bodies):
    for body, verdict in zip(bodies, verifier.judge([program(body) for body in bodies]), strict=True):
        assert verdict.verdict in VERDICTS
        if verdict.verdict == "passed":
            assert _value_of(body) == [(type(case.expected), case.expected) for case in CASES["x"]]


def _value_of(expression):
    function = _evaluated(f"lambda x: {expression}")
    return [(type(value), value) for value in map(function, (case.argument for case in CASES["x"]))]


def _evaluated(expression, **names):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(expression, names)


leaves = st.sampled_from(["x", "0", "1", "2", "True", "1.0", "[x]", "'a'", "None"])
tame = st.recursive(
    leaves,
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "-", "*", "%", "//", "==", "<", "and", "or", "is", "in"]), part).map(
            lambda p: f"({' '.join(p)})"
        ),
        st.tuples(st.sampled_from(["-", "not ", "~"]), part).map(lambda p: f"({p[0]}{p[1]})"),
        st.tuples(part, part, part).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        st.tuples(st.sampled_from(["abs", "int", "len", "sum", "max", "str", "bool"]), part).map(lambda p: f"{p[0]}({p[1]})"),
    ),
    max_leaves=5,
)


@calm
@given(st.lists(tame, min_size=4, max_size=8))
@example(["x + 1", "x - -1", "1 + x", "x + True", "x + 1.0", "~-x + 2", "(x, 1)[0] + 1"])
def test_the_verdict_on_tame_expressions_is_that_of_direct_evaluation(verifier, bodies):
    for body, verdict in zip(bodies, verifier.judge([program(body) for body in bodies]), strict=True):
        assert verdict.verdict == _direct_verdict(body), body


def _direct_verdict(body):
    for case in CASES["x"]:
        try:
            value = _evaluated(body, x=case.argument)
        except Exception:
            return "failed"
        if (type(value), value) != (type(case.expected), case.expected):
            return "failed"
    return "passed"


names = st.sampled_from(["x", "f", "len", "sum", "open", "__class__", "y", "range", "values", "join"])
constants = st.one_of(st.integers(-3, 10**10), st.text(max_size=3), st.floats(), st.booleans(), st.none(), st.binary(max_size=2)).map(repr)
operators = st.sampled_from(["+", "*", "**", "<<", "%", "@", "in", "if x else", ":="])
templates = st.sampled_from(
    [
        "[{} for {} in {}]",
        "{{{}: {} for {} in [0]}}",
        "(lambda {}: {})({})",
        "{}({}, *{})",
        "{}[{}:{}]",
        "(yield {}, {}, {})",
        "(await {}, {}, {})",
        "f'{{{}:{{{}}}}}' % {}",
        "{}.{} < {}",
        "({} := {}) is not {}",
    ]
)
wild = st.recursive(
    st.one_of(names, constants),
    lambda part: st.one_of(
        st.tuples(part, operators, part).map(lambda p: f"({' '.join(p)})"),
        st.tuples(templates, part, part, part).map(lambda p: p[0].format(*p[1:])),
    ),
    max_leaves=12,
)
statements = st.sampled_from(
    ["return [{}]", "while {}: pass", "for x in {}: y = x", "x = {}", "del {}", "def f({}): pass", "class x({}): pass", "x += {}"]
)


@calm
@given(st.lists(st.tuples(statements, wild), min_size=8, max_size=8))
def test_random_syntax_gets_a_verdict_and_no_reward(verifier, parts):
    bodies = [f"{statement.format(expression)}\nreturn [x]" for statement, expression in parts]
    verdicts = verifier.judge([program(body) for body in bodies])
    assert {verdict.verdict for verdict in verdicts} <= {"failed", "invalid"}


@settings(deadline=None, derandomize=True)
@given(st.binary(max_size=60))
def test_the_stop_rule_answers_on_any_bytes(source):
    for text in (source, b"def f(x):\n    return " + source, b"def f(x):\n    return x" + source + b"\n"):
        assert is_complete(text, "f", "x") in (True, False)
