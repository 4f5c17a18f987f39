"""Numbers as a reader sees them."""

import math
from typing import get_args

import pytest

from glint.config.model import DENSE, FAITHFUL, ModelRecipe
from glint.report import wording


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (wording.share(0.59166), "59.2\u202f%"),
        (wording.setting(0.95), "95\u202f%"),
        (wording.points(0.425), "+42.5 points"),
        (wording.points(-0.234), "\u221223.4 points"),
        (wording.interval(0.1, 0.25), "[10.0, 25.0]"),
        (wording.interval(-0.1, 0.25, signed=True), "[\u221210.0, +25.0]"),
        (wording.interval(math.nan, math.nan), "no interval"),
        (wording.p_value(0.0625, 0.0625), "0.0625 (smallest possible 0.0625)"),
        (wording.whole(25730592), "25,730,592"),
        (wording.whole(2.5), "2.5"),
        (wording.count(15.0, 24), "15/24"),
        (wording.nats(-0.0314159, signed=True), "\u22120.031"),
        (wording.thousandths(0.0126), "+13"),
        (wording.thousandths(-0.2504), "\u2212250"),
        (wording.thousandths(-0.0004), "0"),
        (wording.milliseconds(0.001234), "1.23"),
        (wording.tera(41230000000000), "41.2"),
        (wording.seconds(63.1), "63.1\u202fs"),
        (wording.seconds(150), "2.5\u202fmin"),
    ],
)
def test_forms(written, expected):
    assert written == expected


def test_a_model_is_told_by_what_it_has_and_the_base_has_not():
    words = wording.MECHANISMS
    assert wording.mechanisms(ModelRecipe(linear="kda", expert_hidden=380)) == words["linear", "kda"]
    assert wording.mechanisms(ModelRecipe(ffn="dense", ffn_hidden=900)) == words["ffn", "dense"]
    assert wording.mechanisms(ModelRecipe(heads=3)) == "the same mechanisms in other sizes"
    assert wording.mechanisms(DENSE).startswith("Llama-style")
    assert all(words[pair] in wording.mechanisms(FAITHFUL) for pair in wording.REAL.items())
    assert words["linear", "kda"] not in wording.mechanisms(FAITHFUL, ModelRecipe(linear="kda"))
    assert words["router", "softmax"] in wording.mechanisms(ModelRecipe(), DENSE)


def test_a_base_is_told_by_all_that_it_is_made_of():
    hybrid = {("linear", "elu"), ("sparse", "strided"), ("residual", "mixed"), ("ffn", "moe"), ("router", "softmax")}
    assert set(wording.mechanisms(ModelRecipe()).split(", ")) == {wording.MECHANISMS[pair] for pair in hybrid}
    assert "router" not in wording.mechanisms(DENSE, DENSE)


def test_every_mechanism_of_a_recipe_has_its_words():
    for key in ("linear", "sparse", "residual", "ffn", "router"):
        values = get_args(ModelRecipe.model_fields[key].annotation)
        assert {value for name, value in wording.MECHANISMS if name == key} == set(values)
