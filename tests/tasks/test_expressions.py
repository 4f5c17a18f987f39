"""Structures and examples of the pretraining studies: counts, splits, meaning, and the order in which a model meets them."""

import ast
import json
from collections import Counter
from itertools import product

import pandas as pd
import pytest

from glint.config.expressions import ExpressionsRecipe
from glint.tasks.corpus import tokenise
from glint.tasks.expressions import STRUCTURES, draw_examples, expression, split_structures, words
from glint.tasks.tokenizer import decode

PUBLISHED = ExpressionsRecipe()
BATCH = 24


def drawn(seed=42, **changes):
    return draw_examples(ExpressionsRecipe(**changes), BATCH, seed)


def trained_on(examples):
    rows: pd.DataFrame = examples[examples["split"] == "pretrain"]
    return rows.reset_index(drop=True)


@pytest.fixture(scope="module")
def diverse():
    return drawn()


@pytest.fixture(scope="module")
def blocked():
    return drawn(order="blocked")


def test_structures_are_the_triples_with_two_different_operations():
    names = ("add", "sub", "mul", "neg", "abs")
    assert set(STRUCTURES) == {triple for triple in product(names, repeat=3) if triple != (triple[0],) * 3}
    assert len(STRUCTURES) == 120


def test_88_structures_train_and_32_others_are_held_out_whatever_the_training_seed(diverse):
    trained, held_out = split_structures(PUBLISHED)
    assert (len(trained), len(held_out)) == (88, 32)
    assert not set(trained) & set(held_out)
    assert set(trained_on(diverse)["family"]) == {"-".join(steps) for steps in trained}
    assert set(diverse.loc[diverse["split"] == "held_out", "family"]) == {"-".join(steps) for steps in held_out}
    assert trained != [steps for steps in STRUCTURES if steps in trained]  # shuffled
    other = drawn(seed=7)
    scored = diverse["split"] != "pretrain"
    pd.testing.assert_frame_equal(diverse[scored], other[other["split"] != "pretrain"])
    assert not trained_on(diverse)["completion"].equals(trained_on(other)["completion"])


@pytest.mark.parametrize(
    ("structure", "said", "written"),
    [
        (("add", "neg", "mul"), "n: plus 2, negated, times 4.", "(-(n + 2)) * 4"),
        (("neg", "abs", "sub"), "n: negated, unsigned, minus 4.", "abs(-n) - 4"),
        (("mul", "sub", "abs"), "n: times 2, minus 3, unsigned.", "abs((n * 2) - 3)"),
        (("abs", "abs", "neg"), "n: unsigned, unsigned, negated.", "-abs(abs(n))"),
        (("neg", "neg", "add"), "n: negated, negated, plus 4.", "(-(-n)) + 4"),
    ],
)
def test_words_and_expression_of_a_structure(structure, said, written):
    assert words(structure, [2, 3, 4]) == said
    assert expression(structure, [2, 3, 4]) == written


APPLIED = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
}


def walked(node, n):
    """Evaluate the tree of an expression, without the code that wrote it."""
    match node:
        case ast.BinOp(left, operator, right):
            return APPLIED[type(operator)](walked(left, n), walked(right, n))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -walked(operand, n)
        case ast.Call(func=ast.Name("abs"), args=[argument]):
            return max(walked(argument, n), -walked(argument, n))
        case ast.Constant(value):
            return value
        case ast.Name("n"):
            return n
    raise AssertionError(ast.dump(node))


def test_cases_are_what_the_expression_gives(diverse):
    scored = diverse[diverse["split"] != "pretrain"]
    assert len(scored) == 120 * PUBLISHED.evaluation_examples
    for row in scored.itertuples():
        tree = ast.parse(row.completion.strip(), mode="eval").body
        cases = json.loads(row.cases)
        assert len(cases) == PUBLISHED.cases_per_task
        assert min(case["argument"] for case in cases) < 0 < max(case["argument"] for case in cases)
        assert [case["expected"] for case in cases] == [walked(tree, case["argument"]) for case in cases]


def test_the_steps_in_words_are_those_of_the_expression(diverse):
    """Read the words as a program of their own."""
    meanings = {"plus": "({} + {})", "minus": "({} - {})", "times": "({} * {})", "negated": "(-{})", "unsigned": "abs({})"}
    for row in trained_on(diverse).head(500).itertuples():
        text = "n"
        for step in row.prompt.splitlines()[0].removeprefix("# n: ").removesuffix(".").split(", "):
            verb, _, operand = step.partition(" ")
            text = meanings[verb].format(text, operand)
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(row.completion))
        assert row.family.count("-") == 2


def test_names_are_unique_and_stand_in_the_prompt(diverse):
    assert diverse["identity"].is_unique
    for row in diverse.head(300).itertuples():
        definition = ast.parse(row.prompt + row.completion).body[0]
        assert isinstance(definition, ast.FunctionDef)
        assert definition.name == row.identity


def test_blocked_and_interleaved_are_the_same_examples_in_another_order(diverse, blocked):
    ours, theirs = trained_on(diverse), trained_on(blocked)
    columns = ["identity", "prompt", "completion"]
    assert len(ours) == 4800
    assert Counter(ours[columns].itertuples(index=False, name=None)) == Counter(theirs[columns].itertuples(index=False, name=None))
    assert not ours["identity"].equals(theirs["identity"])
    assert theirs["block"].is_monotonic_increasing
    assert theirs.groupby("block").size().between(54, 55).all()


def test_interleaved_rounds_meet_every_structure_before_one_comes_again(diverse):
    blocks = trained_on(diverse)["block"]
    assert [set(blocks[start : start + 88]) for start in range(0, 4800 - 88, 88)] == [set(range(88))] * (4800 // 88)


def test_the_narrow_arm_repeats_the_first_8_structures():
    examples = trained_on(drawn(structures=8))
    assert len(examples) == 4800
    assert examples.groupby("block").size().to_dict() == dict.fromkeys(range(8), 600)


def test_a_curriculum_meets_8_structures_for_100_steps_and_then_all(diverse):
    examples = trained_on(drawn(order="curriculum"))
    first, second = examples[: 100 * BATCH], examples[100 * BATCH :]
    assert len(examples) == 4800
    assert set(first["block"]) == set(range(8))
    assert set(second["block"]) == set(range(88))
    assert examples[columns := ["split", "argument"]].equals(trained_on(diverse)[columns])


def test_tokens_are_the_examples_in_their_order(blocked):
    tokens = tokenise(blocked)
    rows = trained_on(blocked)
    lengths = tokens["offsets"][1:] - tokens["offsets"][:-1]
    assert lengths.max() <= 128
    start, end = tokens["offsets"][17:19]
    assert decode(tokens["ids"][start:end].tolist()).decode() == rows["prompt"][17] + rows["completion"][17]
