import pytest

from glint.tasks.families import FAMILIES
from glint.verify import is_complete
from glint.verify.policy import RejectedError, admit

HEAD = b"# Say what.\n# And why.\ndef even_abcdefg(x):\n"


@pytest.mark.parametrize(
    "completion",
    [
        b"    return x\n",
        b"    return x + 1\n",
        b"\treturn x\n",
        b"    x = 1\n",
        b"    pass\n",
        b"    import os\n",
        b"    return x\n\n\n",
        b"    return (x,\n  1)\n",
    ],
)
def test_a_sample_is_complete_once_it_is_the_function_and_a_newline(completion):
    assert is_complete(HEAD + completion, "even_abcdefg", "x")


@pytest.mark.parametrize(
    "completion",
    [
        b"",
        b"    return x",
        b"    return x +\n",
        b"    return (x\n",
        b"    return x\nprint(1)\n",
        b"    return x\ndef g(x):\n    return 1\n",
        b"return x\n",
        b"    if x:\n",
        b"    return '\n",
        b"    return x\0\n",
        b"    return x # \xff\n",
        b"    return " + b"-" * 2048 + b"x\n",
    ],
)
def test_a_sample_goes_on_while_it_is_not(completion):
    assert not is_complete(HEAD + completion, "even_abcdefg", "x")


@pytest.mark.parametrize(("function", "argument"), [("even_abcdefh", "x"), ("even_abcdefg", "y")])
def test_another_name_or_argument_is_another_function(function, argument):
    assert not is_complete(HEAD + b"    return 1\n", function, argument)


def test_the_stop_rule_looks_at_form_alone():
    source = b"def f(x):\n    import os\n"
    assert is_complete(source, "f", "x")
    with pytest.raises(RejectedError):
        admit(source, "f", "x")


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_every_reference_is_admitted(family):
    source = f"def f({family.argument}):\n    return {family.expression}\n"
    assert admit(source.encode(), "f", family.argument).name == "f"


@pytest.mark.parametrize(
    ("source", "rule", "detail", "line", "column"),
    [
        ("def f(x):\n    return x.real\n", "attribute not allowed", "real", 2, 12),
        ("def f(x):\n    y = 1\n    return eval(y)\n", "name not allowed", "eval", 3, 12),
        ("def f(x):\n    while x:\n        try:\n            x\n        except:\n            x\n", "syntax not allowed", "Try", 3, 9),
        ("def f(x):\n    return open(print)\n", "name not allowed", "open", 2, 12),
        ("def f(x):\n    return 1j\n", "literal not allowed", "complex", 2, 12),
        ("def f(x):\n    return x +\n", "syntax", "invalid syntax", 2, 15),
        ("def f(x, y):\n    return x\n", "signature", "the signature is not def f(x)", 1, 1),
        ("x = 1\n", "shape", "the source is not one function", 0, 0),
    ],
)
def test_the_first_broken_rule_is_named_with_its_place(source, rule, detail, line, column):
    with pytest.raises(RejectedError) as caught:
        admit(source.encode(), "f", "x")
    error = caught.value
    assert (error.rule, error.detail, error.line, error.column) == (rule, detail, line, column)


def test_warnings_of_the_parser_stay_inside(recwarn):
    admit(b"def f(x):\n    return '\\d' if x is 1 else 0x1for x\n", "f", "x")
    assert not recwarn.list
