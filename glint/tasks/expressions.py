"""Three-step expressions: every structure, and the examples of one training seed, in the order in which a model meets them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import Generator

from glint.config.expressions import ExpressionsRecipe
from glint.randomness import rng

ARGUMENT = "n"
LOWEST_OPERAND, HIGHEST_OPERAND = 2, 9
INPUT_RANGES = ((10, 99), (-99, -10), (-9, 9))
"""Inputs of the cases: beyond all operands on either side, where a lost sign shows, and among them."""
NAME_LETTERS = 4
SPLITS = ("held_out", "trained", "pretrain")
"""Scored examples of held-out and of trainable structures, then the examples trained on."""


@dataclass(frozen=True)
class Operation:
    """One step: what it is called, what it does, and how Python writes it. An operand is put into `words` and `code` where they name it."""

    words: str
    code: str
    """Over `value`, the steps before; in brackets unless `encloses` or a bare name or call."""
    apply: Callable[[int, int], int]
    encloses: bool = False
    """Whether `code` puts `value` between brackets of its own."""


OPERATIONS = {
    "add": Operation("plus {operand}", "{value} + {operand}", lambda value, operand: value + operand),
    "sub": Operation("minus {operand}", "{value} - {operand}", lambda value, operand: value - operand),
    "mul": Operation("times {operand}", "{value} * {operand}", lambda value, operand: value * operand),
    "neg": Operation("negated", "-{value}", lambda value, _: -value),
    "abs": Operation("unsigned", "abs({value})", lambda value, _: abs(value), encloses=True),
}

Structure = tuple[str, ...]
STRUCTURES: tuple[Structure, ...] = tuple(steps for steps in product(OPERATIONS, repeat=3) if len(set(steps)) > 1)


def split_structures(recipe: ExpressionsRecipe) -> tuple[list[Structure], list[Structure]]:
    """Return the trainable and the held-out structures, each in the order of one shuffle by the evaluation seed."""
    order = rng(recipe.evaluation_seed, "expressions", "structures").permutation(len(STRUCTURES))
    shuffled = [STRUCTURES[index] for index in order]
    return shuffled[: -recipe.held_out], shuffled[-recipe.held_out :]


def words(structure: Structure, operands: list[int]) -> str:
    """Return the steps in words, in the order in which they are taken."""
    steps = [OPERATIONS[name].words.format(operand=operand) for name, operand in zip(structure, operands, strict=True)]
    return f"{ARGUMENT}: {', '.join(steps)}."


def expression(structure: Structure, operands: list[int]) -> str:
    """Return the Python expression of the steps; what a step works on stands in brackets unless it is a bare name or call."""
    text, bare = ARGUMENT, True
    for name, operand in zip(structure, operands, strict=True):
        operation = OPERATIONS[name]
        value = text if bare or operation.encloses else f"({text})"
        text, bare = operation.code.format(value=value, operand=operand), operation.encloses
    return text


def evaluate_steps(structure: Structure, operands: list[int], value: int) -> int:
    """Return what the steps make of `value`."""
    for name, operand in zip(structure, operands, strict=True):
        value = OPERATIONS[name].apply(value, operand)
    return value


def draw_examples(recipe: ExpressionsRecipe, batch: int, seed: int) -> pd.DataFrame:
    """Return the scored examples, then those that a model meets, in this order.

    Columns as in the corpus (family: the structure; identity: the function name, unique), and `block`: place of the structure in the
    shuffled list, held-out ones last. The scored ones come from `recipe.evaluation_seed`, and only they have cases. Examples trained on
    depend on `seed`; the first part of a curriculum has `curriculum_steps` times `batch` of them.
    """
    scored = _scored(recipe)
    met = _met(recipe, batch, seed, {row["identity"] for row in scored})
    return pd.DataFrame([*scored, *met]).drop(columns=["structure", "operands"])


def _scored(recipe: ExpressionsRecipe) -> list[dict[str, Any]]:
    """Return the examples on which checkpoints are scored, held-out structures first."""
    trained, held_out = split_structures(recipe)
    generator = rng(recipe.evaluation_seed, "expressions", "scored")
    names = _names(generator, set())
    scored = []
    for split, known, first in (("held_out", held_out, len(trained)), ("trained", trained, 0)):
        order = [place for place in enumerate(known, start=first) for _ in range(recipe.evaluation_examples)]
        for row in _examples(order, split, recipe.evaluation_seed, generator, names):
            scored.append(row | {"cases": json.dumps(_cases(row, generator, recipe.cases_per_task))})
    return scored


def _met(recipe: ExpressionsRecipe, batch: int, seed: int, taken: set[str]) -> list[dict[str, Any]]:
    """Return the examples of one training seed in the order in which the model meets them."""
    trained, _ = split_structures(recipe)
    generator = rng(seed, "expressions", "pretrain")
    names = _names(generator, taken)
    rows = [row | {"cases": "[]"} for row in _examples(_order(recipe, trained, batch, generator), "pretrain", seed, generator, names)]
    return sorted(rows, key=lambda row: row["block"]) if recipe.order == "blocked" else rows


def _order(recipe: ExpressionsRecipe, trained: list[Structure], batch: int, generator: Generator) -> list[tuple[int, Structure]]:
    """Return block and structure of each example: rounds through the structures, each in a new order."""
    few = recipe.curriculum_steps * batch if recipe.order == "curriculum" else 0
    blocks = [*_rounds(recipe.curriculum_structures, few, generator), *_rounds(recipe.structures, recipe.examples - few, generator)]
    return [(block, trained[block]) for block in blocks]


def _rounds(structures: int, examples: int, generator: Generator) -> list[int]:
    """Return `examples` places below `structures`, each as often as the others to within one."""
    rounds = -(-examples // structures)
    return [int(place) for _ in range(rounds) for place in generator.permutation(structures)][:examples]


def _names(generator: Generator, taken: set[str]) -> Iterator[str]:
    """Yield function names in random order, each once, none of those `taken`."""
    for code in generator.permutation(len(ascii_lowercase) ** NAME_LETTERS):
        letters = np.unravel_index(code, (len(ascii_lowercase),) * NAME_LETTERS)
        name = f"f_{''.join(ascii_lowercase[letter] for letter in letters)}"
        if name not in taken:
            yield name


def _examples(
    order: list[tuple[int, Structure]], split: str, seed: int, generator: Generator, names: Iterator[str]
) -> Iterator[dict[str, Any]]:
    """Yield one example a member of `order`; every step draws an operand, which `neg` and `abs` do not use."""
    operands_E3 = generator.integers(LOWEST_OPERAND, HIGHEST_OPERAND + 1, size=(len(order), 3)).tolist()
    for (block, structure), operands in zip(order, operands_E3, strict=True):
        name = next(names)
        yield {
            "family": "-".join(structure),
            "identity": name,
            "split": split,
            "seed": seed,
            "phrasing": 0,
            "argument": ARGUMENT,
            "prompt": f"# {words(structure, operands)}\ndef {name}({ARGUMENT}):\n    return ",
            "completion": f"{expression(structure, operands)}\n",
            "block": block,
            "structure": structure,
            "operands": operands,
        }


def _cases(example: dict[str, Any], generator: Generator, count: int) -> list[dict[str, int]]:
    """Return `count` inputs from the ranges in turn, with what the steps make of them."""
    values = [int(generator.integers(low, high + 1)) for low, high in (INPUT_RANGES[index % len(INPUT_RANGES)] for index in range(count))]
    return [{"argument": value, "expected": evaluate_steps(example["structure"], example["operands"], value)} for value in values]
