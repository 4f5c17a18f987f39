"""The function families: what a task asks for, the reference answer, and the inputs on which answers are compared."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from string import ascii_letters, digits
from typing import Any

from numpy.random import Generator

Draw = Callable[[Generator], Any]
MOST_DISTINCT = 60
LETTERS = tuple(ascii_letters + digits + " ")


@dataclass(frozen=True)
class Family:
    """Tasks that differ in their function's name and in their hidden cases, and share all else.

    The declared input domain is the union of `strata`. Reward cases take one stratum after the other, so that a program which is
    right on one kind of input only (one sign, one parity, one length) meets a case that it fails.
    """

    name: str
    argument: str
    expression: str
    """The reference body, an expression over the argument."""
    phrasings: tuple[str, str]
    """Two descriptions of the same function, shown as a comment."""
    strata: tuple[Draw, ...]
    """Kinds of input, each a way to draw one."""
    edges: tuple[Any, ...]
    """Inputs that the property suite always tries."""
    beyond: Draw
    """Inputs of larger size, for the property suite alone."""
    corrupted: bool = False
    """Whether one expectation of each task is wrong on purpose: a canary, which no honest program passes."""

    @cached_property
    def reference(self) -> Callable[[Any], Any]:
        """The right answer for one input, compiled from `expression`."""
        function: Callable[[Any], Any] = eval(f"lambda {self.argument}: {self.expression}")
        return function

    def draw(self, rng: Generator) -> Any:
        """Return one input of the declared domain."""
        return self.strata[rng.integers(len(self.strata))](rng)

    def draw_distinct(self, rng: Generator, count: int) -> list[Any]:
        """Return `count` different inputs in random order, the strata taken in turn; ValueError if `count` exceeds `MOST_DISTINCT`."""
        if count > MOST_DISTINCT:
            raise ValueError(f"{count} cases a task are more than the {MOST_DISTINCT} different inputs that a family is sure to have")
        inputs = self._distinct((), (self.strata[index % len(self.strata)] for index in range(count)), rng)
        return [inputs[index] for index in rng.permutation(count)]

    def property_inputs(self, rng: Generator, count: int) -> list[Any]:
        """Return `count` different inputs: the edges, then draws of which every second one lies beyond the reward's domain."""
        draws = (self.beyond if index % 2 else self.draw for index in range(count - len(self.edges)))
        return self._distinct(self.edges[:count], draws, rng)

    def _distinct(self, first: Iterable[Any], draws: Iterable[Draw], rng: Generator) -> list[Any]:
        """Return the values of `first`, then one of each of `draws`; a repeated value is replaced by one from the whole domain."""
        values = list(first)
        for draw in draws:
            value = draw(rng)
            while value in values:
                value = self.draw(rng)
            values.append(value)
        return values


def _integer(low: int, high: int, multiple: int = 1, offset: int = 0) -> Draw:
    return lambda rng: int(rng.integers(low, high + 1)) * multiple + offset


def _text(shortest: int, longest: int) -> Draw:
    """Draw text without a repeated letter: from two letters on it differs from its reverse."""
    return lambda rng: "".join(rng.permutation(LETTERS)[: rng.integers(shortest, longest + 1)])


def _integers(shortest: int, longest: int, low: int = -99, high: int = 99) -> Draw:
    return lambda rng: [int(value) for value in rng.integers(low, high + 1, size=rng.integers(shortest, longest + 1))]


def _with_repeat(rng: Generator) -> list[int]:
    """Draw numbers among which one is not zero and stands twice, so that a sum over a set goes wrong."""
    repeated = int(rng.integers(1, 100))
    values = [repeated, repeated, *_integers(2, 4)(rng)]
    return [values[index] for index in rng.permutation(len(values))]


SIGNS_AND_ZERO = (_integer(3, 99), _integer(-99, -2), _integer(-1, 2))
SMALL_INTEGERS = tuple(range(-20, 21))
LARGE_INTEGER = _integer(-(10**6), 10**6)


PARITIES = (_integer(1, 24, multiple=4, offset=2), _integer(1, 49, multiple=2, offset=1), _integer(-99, -1))
"""Both parities of one sign, the even one no multiple of four, refute what looks at the sign or at more than the last bit."""

PLUS_ONE = ("Give back x with one added.", "Return the integer after x.")


def _integer_family(
    name: str, expression: str, phrasings: tuple[str, str], strata: tuple[Draw, ...] = SIGNS_AND_ZERO, corrupted: bool = False
) -> Family:
    return Family(name, "x", expression, phrasings, strata, SMALL_INTEGERS, LARGE_INTEGER, corrupted)


_INTEGER_FAMILIES = (
    _integer_family("increment", "x + 1", PLUS_ONE),
    _integer_family("double", "x * 2", ("Give back twice the number x.", "Return x added to itself.")),
    _integer_family("square", "x * x", ("Give back x times itself.", "Return the second power of x.")),
    _integer_family("absolute", "-x if x < 0 else x", ("Give back x without its sign.", "Return how far x is from 0.")),
    _integer_family("nonnegative", "x if x > 0 else 0", ("Give back x, or 0 if x is below.", "Return the larger of x and 0.")),
    _integer_family("even", "x % 2 == 0", ("Tell whether 2 divides x exactly.", "Return True if x is even."), PARITIES),
)

_SEQUENCE_FAMILIES = (
    Family(
        name="reverse",
        argument="text",
        expression="text[::-1]",
        phrasings=("Give back text from end to start.", "Return text with its order flipped."),
        strata=(_text(7, 12), _text(4, 6), _text(2, 3)),
        edges=("", "a", "ab", "aa", "aba", "abc", "banana", "hello world", "Ab c", " ab", "zyx", "12", "a\nb", "é漢", "'\"\\"),
        beyond=_text(13, 40),
    ),
    Family(
        name="list_sum",
        argument="values",
        expression="sum(values)",
        phrasings=("Give back the total of all values.", "Return the values added together."),
        strata=(_with_repeat, _integers(2, 3), _integers(0, 1)),
        edges=([], [0], [1], [-1], [7], [1, 2], [2, 2], [-3, 3], [1, 2, 3], [3, 1, 2], [5, 5, 5], [-1, -2, -3], [0, 0, 9], [1, -1, 1, -1]),
        beyond=_integers(5, 40, -(10**6), 10**6),
    ),
)

FAMILIES = {family.name: family for family in (*_INTEGER_FAMILIES, *_SEQUENCE_FAMILIES)}
"""What may be trained and is reported, by name."""

CANARY = _integer_family("canary", "x + 1", PLUS_ONE, corrupted=True)
"""Asks what `increment` asks, but one of its expectations is wrong: a reward here means that the rewards cannot be believed."""


def family_named(name: str) -> Family:
    """Return the family `name`, the canary included; raises ValueError with the known names."""
    known = {**FAMILIES, CANARY.name: CANARY}
    if name not in known:
        raise ValueError(f"unknown family {name!r}; families: {', '.join(known)}")
    return known[name]
