"""Plain values as text: one text for one value of one type, so that equal texts mean equal values, by exact type at every depth."""

import math
from typing import Any

LARGEST_BITS = 4096
MOST_PARTS = 20_000
LONGEST_TEXT = 100_000
DEEPEST_LEVEL = 20


class NotPlainError(Exception):
    """A value that no answer may hold."""


def encode(value: Any) -> str:
    """Return `value` as an ASCII literal.

    Only None, bool, int, float, str, list and tuple are plain, subclasses are not. A NaN equals nothing and is refused, and so is what is
    nested, long or large beyond measure.

    Raises:
        NotPlainError: saying what is wrong with the value.

    """
    left = MOST_PARTS
    pending = [(value, 0)]
    while pending:
        part, level = pending.pop()
        kind = type(part)
        if kind is int:
            if part.bit_length() > LARGEST_BITS:
                raise NotPlainError("an int too large")
        elif kind is list or kind is tuple:
            left -= len(part)
            if left < 0 or level == DEEPEST_LEVEL:
                raise NotPlainError("a value of too many parts")
            pending.extend((item, level + 1) for item in part)
        else:
            _check_other(part)
    return ascii(value)


def _check_other(value: Any) -> None:
    kind = type(value)
    if kind is str:
        if len(value) > LONGEST_TEXT:
            raise NotPlainError("a str too long")
    elif kind is float:
        if math.isnan(value):
            raise NotPlainError("a NaN")
    elif kind is not bool and value is not None:
        raise NotPlainError(f"a value of type {kind.__name__}")
