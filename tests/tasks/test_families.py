import ast
from typing import Any

import numpy as np
import pytest

from glint.config.corpus import ALL_FAMILIES
from glint.tasks.families import CANARY, FAMILIES, MOST_DISTINCT, family_named

BY_HAND: dict[str, list[tuple[Any, Any]]] = {
    "increment": [(-1, 0), (41, 42)],
    "double": [(0, 0), (-7, -14)],
    "square": [(-3, 9), (12, 144)],
    "absolute": [(-5, 5), (5, 5), (0, 0)],
    "nonnegative": [(-4, 0), (0, 0), (4, 4)],
    "even": [(-2, True), (7, False), (0, True), (-3, False)],
    "reverse": [("", ""), ("abc", "cba"), ("é漢", "漢é")],
    "list_sum": [([], 0), ([2, 2, -1], 3)],
}

every_family = pytest.mark.parametrize("family", [*FAMILIES.values(), CANARY], ids=lambda family: family.name)


def test_the_config_names_every_family_once():
    assert tuple(FAMILIES) == ALL_FAMILIES


@pytest.mark.parametrize("name", FAMILIES)
def test_references_agree_with_hand_computed_answers(name):
    for value, expected in BY_HAND[name]:
        answer = FAMILIES[name].reference(value)
        assert (type(answer), answer) == (type(expected), expected)


@every_family
def test_the_expression_reads_its_argument_alone(family):
    names = {node.id for node in ast.walk(ast.parse(family.expression)) if isinstance(node, ast.Name)}
    assert names - {"sum"} == {family.argument}


@every_family
@pytest.mark.parametrize("count", [1, 3, 7, MOST_DISTINCT])
def test_reward_inputs_are_different_plain_values(family, count):
    values = family.draw_distinct(np.random.default_rng(0), count)
    assert len({repr(value) for value in values}) == len(values) == count
    assert all(type(value) in (int, str, list) for value in values)


def test_more_cases_than_the_domain_holds_are_refused():
    with pytest.raises(ValueError, match="61 cases a task are more than the 60"):
        CANARY.draw_distinct(np.random.default_rng(0), MOST_DISTINCT + 1)


@every_family
@pytest.mark.parametrize("count", [5, 100, 128, 300])
def test_property_inputs_are_different_and_start_at_the_edges(family, count):
    values = family.property_inputs(np.random.default_rng(1), count)
    assert len({repr(value) for value in values}) == len(values) == count
    assert tuple(values[: len(family.edges)]) == family.edges[:count]


def test_three_even_cases_hold_both_parities_of_one_sign_and_both_signs():
    for seed in range(200):
        values = FAMILIES["even"].draw_distinct(np.random.default_rng(seed), 3)
        positive = [value for value in values if value > 0]
        assert {value % 2 for value in positive} == {0, 1}
        assert any(value % 4 == 2 for value in positive)
        assert any(value < 0 for value in values)


@pytest.mark.parametrize("name", ["absolute", "nonnegative"])
def test_three_signed_cases_hold_both_signs_and_the_surroundings_of_zero(name):
    for seed in range(200):
        values = FAMILIES[name].draw_distinct(np.random.default_rng(seed), 3)
        assert min(values) < -1
        assert max(values) > 2
        assert any(-1 <= value <= 2 for value in values)


def test_an_unknown_family_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown family 'odd'; families: increment, double"):
        family_named("odd")
