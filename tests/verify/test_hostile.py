"""Programs that try to break out, to be slow, or to lie: every kind with its verdict."""

import pytest

from glint.verify.policy import LONGEST_SOURCE
from tests.verify.conftest import program, whole

TIME = [
    "9**9**9",
    "x**x**x**x",
    "pow(9, pow(9, 9))",
    "int('9' * 4000) ** 99999",
    "while True:\n    pass",
    "while x == x:\n    x = x + 1\nreturn x",
    "sum(range(10**12))",
    "max(range(10**12))",
    "[0 for a in range(10**6) for b in range(10**6)]",
    "sum(a * b * c for a in range(10**4) for b in range(10**4) for c in range(10**4))",
    "any(i < 0 for i in range(10**12))",
    "sum(1 for _ in iter(int, 1))",
    "for value in iter(int, 1):\n    x = value\nreturn x",
    "('a' * 10**5).count('a' * 50000 + 'b') + sum(1 for _ in range(10**12))",
]
MEMORY = [
    "1<<10**10",
    "'a'*10**10",
    "[x]*10**10",
    "(x,) * 10**9",
    "'a'.join(['b' * 10**8] * 10**3)",
    "('a' * 10**7).replace('a', 'b' * 10**6)",
    "[[0] * 10**6 for _ in range(10**6)]",
    "x = [x]\nwhile True:\n    x = x + x",
    "list(range(10**10))",
]
FORMATS = [
    'f"{x:9999999999}"',
    '"%9999999999d" % x',
    'f"{x:{10**10}}"',
    '"%*d" % (10**9, x)',
    "f\"{'a':>9999999999}\"",
    'f"{1.5:.9999999999f}"',
]
NESTED_FUNCTIONS = [
    "def len(v): return len(v)\nreturn len(x)",
    "def abs(v):\n    return abs(v) + 1\nreturn abs(x)",
    "g = lambda v: g(v)\nreturn g(x)",
    "def a(v): return b(v)\ndef b(v): return a(v)\nreturn a(x)",
    "f(f(x))",
]
CAUGHT_RECURSION = [
    "try:\n    return f(x)\nexcept:\n    return f(x)",
    "try:\n    return f(x)\nexcept BaseException:\n    return x + 1",
    "try:\n    return f(x)\nfinally:\n    f(x)",
    "with x as y:\n    return y",
    "raise x",
    "assert x\nreturn x",
]
SIGNATURES = [
    "def f(x=9**9**9):\n    return x + 1\n",
    "def f(x=[]):\n    return x + 1\n",
    "@print\ndef f(x):\n    return x + 1\n",
    "@(lambda g: g)\ndef f(x):\n    return x + 1\n",
    "def f(x: 9**9**9):\n    return x + 1\n",
    "def f(x) -> 9**9**9:\n    return x + 1\n",
    "def f(x, /):\n    return x + 1\n",
    "def f(*x):\n    return x[0] + 1\n",
    "def f(*, x):\n    return x + 1\n",
    "def f(x, y=0):\n    return x + 1\n",
    "def f(y):\n    return y + 1\n",
    "def g(x):\n    return x + 1\n",
    "async def f(x):\n    return x + 1\n",
    "f = lambda x: x + 1\n",
    "import os\ndef f(x):\n    return x + 1\n",
    "def f(x):\n    return x + 1\nf(9**9**9)\n",
    "def f(x):\n    return x + 1\ndef f(x):\n    return x + 1\n",
    "x = 1\n",
    "",
    "# def f(x)\n",
]
ATTRIBUTES = [
    "().__class__.__base__.__subclasses__()",
    "f.__globals__",
    "f.__code__",
    "(lambda: 0).__closure__",
    "[].append.__self__",
    "(i for i in [1]).gi_frame.f_back",
    "x.real",
    "x.a",
    "''.join.im_self",
    "str.mro()",
    "().__ｃlass__",
    "x.__init_subclass__",
    "__builtins__",
    "__import__('os')",
    "getattr(x, 'real')",
    "eval('x + 1')",
    "ｅval('x + 1')",
    "exec('x = 1')",
    "type(x)",
    "globals()",
    "open('/etc/passwd')",
    "object()",
    "breakpoint()",
    "super()",
    "print(x)",
    "import os\nreturn os",
    "from os import system\nreturn system",
    "global f\nf = 1\nreturn 1",
    "f.state = x\nreturn x + 1",
    "del f.state\nreturn x + 1",
]
FORMAT_ATTRIBUTES = [
    '"{0.__class__}".format(x)',
    'f"{x.__class__}"',
    '"{0.real}".format_map(x)',
    'str.format("{0.__class__}", x)',
    'f"{x!r:{x.__class__}}"',
    '("{0." + "__class__}").format(x)',
]
LIARS = [
    "class E:\n    def __eq__(self, other): return True\nreturn E()",
    "class E(list):\n    pass\nreturn E([x])",
    "return type('E', (), {'__eq__': lambda a, b: True})()",
    "class E(int):\n    def __bool__(self): return True\nreturn [E()]",
    "match x:\n    case _:\n        return x + 1",
]
WRONG_TYPES = [
    ("x + 1.0", "x"),
    ("[x + 1]", "x"),
    ("(x + 1,)", "x"),
    ("str(x + 1)", "x"),
    ("{x: x + 1}", "x"),
    ("{x + 1}", "x"),
    ("list(text[::-1])", "text"),
    ("tuple(text)", "text"),
    ("values", "values"),
    ("range(6)", "values"),
    ("f", "x"),
    ("len", "x"),
    ("'abc'.upper", "x"),
]
NANS = ["float('nan')", "float('inf') - float('inf')", "[float('nan')]", "float('inf') * 0", "-float('nan')", "1e999", "x + 1 + 0 * 1e999"]
EXITS = ["sys.exit(0)", "os._exit(0)", "exit()", "quit()", "raise SystemExit", "import os\nos._exit(0)", "().__class__.__base__"]
DEEP = [
    "(" * 250 + "x" + ")" * 250,
    "x" + ".a" * 900,
    "x" + "+0" * 900,
    "x" + "+0" * 209644,
    "-" * 1500 + "x",
    "not " * 450 + "x",
    "[" * 900,
    "[" * 90 + "]" * 90,
    "lambda: " * 200 + "x",
    "x if x else " * 150 + "x",
    "x" + "[0]" * 600,
    "x" + "()" * 900,
    "(x, " * 99 + "x" + ")" * 99,
    "f'{" * 100,
    "x" + "**x" * 500,
]
BYTES = [
    b"def f(x):\n    return x + 1\0\n",
    b"def f(x):\n    return '\xed\xa0\x80'\n",
    b"def f(x):\n    return x + 1 # \xff\n",
    b"def f(x):\n    return '\xc3'\n",
    b"def f(x):\n    return '\xc0\x80'\n",
    b"\xff\xfed\0e\0f\0",
    b"\xef\xbb\xbfdef f(x):\n    return x + 1\n",
    b"def f(x):\n    return '\\ud800'\n",
    b"def f(x):\n    return '\\N{UNKNOWN NAME}'\n",
    b"# coding: utf-7\ndef f(x):\n    return +AHg-\n",
]
LARGE_LITERALS = ["9" * 5000, "9" * 1900, "0x" + "f" * 1900, "-" + "9" * 30, "1j", "b'a'", "...", "0o" + "7" * 900]
LARGE_NUMBERS = ["str(10**5000)", "10**5000", "int('9' * 5000)", "f'{10**5000}'", "[10**3000]", "str(1 << 40000)"]
MUTATORS = [
    "values.append(0)\nreturn sum(values)",
    "values.sort()\nreturn sum(values)",
    "values.reverse()\nreturn sum(values)",
    "total = 0\nwhile values:\n    total += values.pop()\nreturn total",
    "values[:] = [sum(values)]\nreturn values[0]",
    "total = sum(values)\ndel values[:]\nreturn total",
    "total = sum(values)\nvalues += [True]\nreturn total",
    "total = sum(values)\nvalues[0:1] = map(float, values[0:1])\nreturn total",
    "total = sum(values)\nvalues.append(values)\nreturn total",
]
ITERATORS = [
    ("(v for v in [x + 1])", "x"),
    ("iter([x + 1])", "x"),
    ("iter(int, 1)", "x"),
    ("map(abs, iter(int, 1))", "x"),
    ("yield x + 1", "x"),
    ("yield from iter(int, 1)", "x"),
    ("zip([x + 1])", "x"),
    ("reversed(text)", "text"),
    ("[iter(int, 1)]", "x"),
    ("lambda: x + 1", "x"),
    ("filter(None, values)", "values"),
    ("enumerate(values)", "values"),
]
HUGE_OUTPUTS = [
    "'a' * 10**7",
    "[0] * 10**6",
    "[['a' * 10**4] * 10**3]",
    "for _ in range(60):\n    x = [x, x]\nreturn x",
    "y = []\ny.append(y)\nreturn y",
    "for _ in range(900):\n    x = [x]\nreturn x",
    "['a' * 99999] * 999",
]


@pytest.mark.parametrize("body", [*TIME, *MEMORY, *FORMATS])
def test_bombs_fail_by_a_limit(verifier, body):
    (verdict,) = verifier.judge([program(body)])
    assert verdict.verdict == "failed"
    assert verdict.passed == 0
    limits = (
        ("time limit",)
        if body in TIME
        else ("time limit", "case 1: memory limit", "case 1: raised ValueError", "case 1: raised OverflowError")
    )
    assert verdict.reason in limits


@pytest.mark.parametrize("body", NESTED_FUNCTIONS)
def test_endless_recursion_fails(verifier, body):
    (verdict,) = verifier.judge([program(body)])
    assert (verdict.verdict, verdict.reason) == ("failed", "case 1: raised RecursionError")


@pytest.mark.parametrize("body", [*CAUGHT_RECURSION, *ATTRIBUTES, *FORMAT_ATTRIBUTES, *LIARS, *EXITS])
def test_what_is_not_on_the_allow_list_is_invalid(verifier, body):
    (verdict,) = verifier.judge([program(body)])
    assert verdict.verdict == "invalid"
    assert verdict.reason.startswith(("syntax not allowed:", "attribute not allowed:", "name not allowed:"))


@pytest.mark.parametrize("source", SIGNATURES)
def test_another_signature_is_invalid(verifier, source):
    (verdict,) = verifier.judge([whole(source)])
    assert verdict.verdict == "invalid"
    assert verdict.reason.startswith(("signature:", "shape:"))


def test_a_hidden_builtin_is_legal_and_does_not_leak(verifier):
    hides = [
        "sum = x + 1\nreturn sum",
        "open = x\nreturn open + 1",
        "def abs(v):\n    return v + 1\nreturn abs(x)",
        "for len in [1]:\n    x += len\nreturn x",
    ]
    uses = program("sum([x, len([0]), abs(0)])")
    verdicts = verifier.judge([candidate for body in hides for candidate in (program(body), uses)])
    assert {verdict.verdict for verdict in verdicts} == {"passed"}


@pytest.mark.parametrize("body", ["sum = 5\nreturn sum", "int = lambda v: 9\nreturn int(x)", "f = lambda v: 10\nreturn f(x)"])
def test_a_hidden_builtin_is_no_way_to_a_reward(verifier, body):
    assert verifier.judge([program(body)])[0].verdict == "failed"


@pytest.mark.parametrize(("body", "argument"), WRONG_TYPES)
def test_a_value_of_another_type_fails(verifier, body, argument):
    (verdict,) = verifier.judge([program(body, argument)])
    assert (verdict.verdict, verdict.passed) == ("failed", 0)


@pytest.mark.parametrize("body", NANS)
def test_nan_and_infinity_fail(verifier, body):
    assert verifier.judge([program(body)])[0].verdict == "failed"


@pytest.mark.parametrize("body", DEEP)
def test_deep_nesting_is_invalid(verifier, body):
    assert verifier.judge([program(body)])[0].verdict == "invalid"


@pytest.mark.parametrize("source", BYTES)
def test_bytes_that_are_no_program_text_are_invalid(verifier, source):
    assert verifier.judge([whole(source)])[0].verdict == "invalid"


@pytest.mark.parametrize("body", LARGE_LITERALS)
def test_literals_beyond_measure_are_invalid(verifier, body):
    assert verifier.judge([program(body)])[0].verdict == "invalid"


@pytest.mark.parametrize("body", LARGE_NUMBERS)
def test_numbers_beyond_measure_fail(verifier, body):
    assert verifier.judge([program(body)])[0].verdict == "failed"


@pytest.mark.parametrize("body", MUTATORS)
def test_changing_the_argument_fails(verifier, body):
    (verdict,) = verifier.judge([program(body, "values")])
    assert verdict.verdict == "failed"
    assert verdict.reason.startswith("case 1: changed its argument")


@pytest.mark.parametrize(("body", "argument"), ITERATORS)
def test_an_iterator_as_result_fails_unread(verifier, body, argument):
    (verdict,) = verifier.judge([program(body, argument)])
    assert verdict.verdict == "failed"
    assert verdict.reason.startswith("case 1: returned a value of type")


@pytest.mark.parametrize("body", HUGE_OUTPUTS)
def test_a_huge_answer_fails(verifier, body):
    (verdict,) = verifier.judge([program(body)])
    assert (verdict.verdict, verdict.passed) == ("failed", 0)


def test_a_lone_surrogate_made_at_run_time_fails(verifier):
    assert verifier.judge([program("chr(0xD800)", "text")])[0].verdict == "failed"


def test_a_source_may_fill_the_cap_and_no_more(verifier):
    right = "def f(x):\n    return x + 1\n"
    padding = "#" * (LONGEST_SOURCE - len(right) - 1) + "\n"
    assert verifier.judge([whole(right + padding)])[0].verdict == "passed"
    (verdict,) = verifier.judge([whole(right + "#" + padding)])
    assert (verdict.verdict, verdict.reason) == ("invalid", "size: 2049 bytes are more than 2048")
