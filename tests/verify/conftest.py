import pytest

from glint.verify import Candidate, Case, Limits, Verifier

CASES = {
    "x": (Case(9, 10), Case(-2, -1), Case(0, 1)),
    "text": (Case("abc", "cba"), Case("", ""), Case("xY z", "z Yx")),
    "values": (Case([3, 1, 2], 6), Case([5, 5], 10), Case([], 0)),
}


def program(body: str, argument: str = "x", indent: str = "    ") -> Candidate:
    """Return the candidate `def f(argument)` with the lines of `body`, or with `return body` where that is one expression."""
    lines = body.split("\n") if "\n" in body or body.startswith(("return", "yield", "while", "import", "raise")) else [f"return {body}"]
    return whole("\n".join([f"def f({argument}):", *(indent + line for line in lines)]) + "\n", argument)


def whole(source: str | bytes, argument: str = "x") -> Candidate:
    """Return the candidate with exactly this source."""
    return Candidate(source.encode() if isinstance(source, str) else source, "f", argument, CASES[argument])


@pytest.fixture(scope="session")
def verifier():
    with Verifier(workers=4, limits=Limits(cpu_seconds=0.1)) as shared:
        yield shared
