from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glint.verify.values import DEEPEST_LEVEL, LARGEST_BITS, LONGEST_TEXT, MOST_PARTS, NotPlainError, encode

plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**64), 2**64), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda part: st.one_of(st.lists(part, max_size=4), st.lists(part, max_size=4).map(tuple)),
    max_leaves=8,
)


def equal_by_exact_type(one, other):
    """Compare independently of the encoding."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal_by_exact_type, one, other))
    return one == other and str(one) == str(other)


@given(plain, plain)
def test_texts_are_equal_exactly_for_equal_values(one, other):
    assert (encode(one) == encode(other)) == equal_by_exact_type(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(True, 1), (1, 1.0), ([1], (1,)), (0.0, -0.0), ("1", 1), (None, "None"), ([[True]], [[1]]), ("\\n", "\n"), ("é", "\\xe9"), ([], ())],
)
def test_look_alikes_differ(one, other):
    assert encode(one) != encode(other)


class Liar(list[int]):
    def __eq__(self, other):
        return True

    __hash__ = None


def chain(levels):
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def ring():
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        Liar(),
        [Liar()],
        {},
        {1},
        b"",
        1j,
        object(),
        int,
        len,
        iter([]),
        range(3),
        float("nan"),
        [float("nan")],
        ring(),
        chain(DEEPEST_LEVEL),
        [0] * (MOST_PARTS + 1),
        "a" * (LONGEST_TEXT + 1),
        2**LARGEST_BITS,
        type("Int", (int,), {})(1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(NotPlainError):
        encode(value)


def test_limits_themselves_are_plain():
    for value in ([0] * MOST_PARTS, "a" * LONGEST_TEXT, 2**LARGEST_BITS - 1, chain(DEEPEST_LEVEL - 1)):
        assert encode(value) == ascii(value)


def test_a_value_shared_sixty_levels_deep_is_refused_in_no_time():
    value: Any = 1
    for _ in range(60):
        value = [value, value]
    with pytest.raises(NotPlainError):
        encode(value)
