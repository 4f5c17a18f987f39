"""The corpus of one training seed: tasks with their prompt, reference completion and hidden reward cases, split by purpose."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray

from glint.config.corpus import CorpusRecipe
from glint.randomness import rng
from glint.tasks import tokenizer
from glint.tasks.families import CANARY, Family, family_named

HEADER = "# Complete this function."
SUFFIX_LETTERS = 7
SPLITS = ("pretrain", "rl", "dev", "confirm", "final", "canary")
"""The canary has a split of its own, so that no figure over the families of another split includes it."""


class _Share(NamedTuple):
    """How many tasks of one family a split holds, and the seed that draws them."""

    split: str
    family: Family
    tasks: int
    seed: int


def draw_examples(corpus: CorpusRecipe, seed: int) -> pd.DataFrame:
    """Return every task of training seed `seed`, one row each, the pretraining examples in random order.

    Columns: family, identity, split, seed, phrasing, argument, prompt, completion, cases. No function name stands twice. The evaluation
    splits come from `corpus.evaluation_seed` and are named first, so that every training seed meets the same ones.

    Raises:
        ValueError: a family is unknown, or has fewer different inputs than a task has cases.

    """
    taken: set[str] = set()
    rows = [row for share in _shares(corpus, seed) for row in _tasks(share, corpus.cases_per_task, taken)]
    first = len(rows) - corpus.pretrain_examples
    order = first + rng(seed, "corpus", "pretrain", "order").permutation(corpus.pretrain_examples)
    return pd.DataFrame(rows[:first] + [rows[index] for index in order])


def _shares(corpus: CorpusRecipe, seed: int) -> list[_Share]:
    """Return the plan of the corpus; pretraining comes last, its families equally large to within one example."""
    families = [family_named(name) for name in corpus.families]
    evaluation = {"dev": corpus.dev_tasks_per_family, "confirm": corpus.confirm_tasks_per_family, "final": corpus.final_tasks_per_family}
    each, left = divmod(corpus.pretrain_examples, len(families))
    return [
        *(_Share(split, family, count, corpus.evaluation_seed) for split, count in evaluation.items() for family in families),
        _Share("canary", CANARY, corpus.confirm_tasks_per_family, corpus.evaluation_seed),
        *(_Share("rl", family, corpus.rl_tasks_per_family, seed) for family in families),
        *(_Share("pretrain", family, each + (place < left), seed) for place, family in enumerate(families)),
    ]


def _tasks(share: _Share, cases: int, taken: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the tasks of `share`; their draws depend on its seed, split and family alone, so that other families leave them as they are."""
    split, family, count, seed = share
    generator = rng(seed, "corpus", split, family.name)
    for _ in range(count):
        identity = _fresh_name(family.name, generator, taken)
        phrasing = int(generator.integers(len(family.phrasings)))
        yield {
            "family": family.name,
            "identity": identity,
            "split": split,
            "seed": seed,
            "phrasing": phrasing,
            "argument": family.argument,
            "prompt": f"{HEADER}\n# {family.phrasings[phrasing]}\ndef {identity}({family.argument}):\n",
            "completion": f"    return {family.expression}\n",
            "cases": json.dumps(draw_cases(family, generator, cases)),
        }


def _fresh_name(family: str, generator: Generator, taken: set[str]) -> str:
    """Return a function name that no earlier task has, and take it."""
    while True:
        name = f"{family}_{''.join(chr(ord('a') + letter) for letter in generator.integers(26, size=SUFFIX_LETTERS))}"
        if name not in taken:
            taken.add(name)
            return name


def draw_cases(family: Family, generator: Generator, count: int) -> list[dict[str, Any]]:
    """Return the hidden reward cases of one task, each an argument and the value expected for it."""
    cases = [{"argument": value, "expected": family.reference(value)} for value in family.draw_distinct(generator, count)]
    if family.corrupted:
        cases[generator.integers(count)]["expected"] += 1
    return cases


def token_rows(examples: pd.DataFrame) -> list[list[int]]:
    """Return the ids of each example: bos, prompt, completion, eos."""
    return [tokenizer.encode(text, eos=True) for text in examples["prompt"] + examples["completion"]]


def tokenise(examples: pd.DataFrame) -> dict[str, NDArray[Any]]:
    """Return the pretraining split as one run of ids: `ids` uint16 (tokens,) and `offsets` int64 (examples + 1,).

    Example i is `ids[offsets[i]:offsets[i + 1]]`.
    """
    rows = token_rows(examples[examples["split"] == "pretrain"])
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return {"ids": np.array([token for row in rows for token in row], dtype=np.uint16), "offsets": offsets}


def data_card(examples: pd.DataFrame, tokens: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return what a reader checks before training: task counts, token statistics, content hashes, and names shared by two splits."""
    lengths = np.diff(tokens["offsets"])
    splits = {split: examples[examples["split"] == split] for split in SPLITS}
    names = {split: set(rows["identity"]) for split, rows in splits.items()}
    return {
        "tasks": {split: {family: int(count) for family, count in Counter(rows["family"]).items()} for split, rows in splits.items()},
        "tokens": {
            "total": int(lengths.sum()),
            "mean": float(lengths.mean()),
            "shortest": int(lengths.min()),
            "longest": int(lengths.max()),
        },
        "sha256": {
            "examples": hashlib.sha256(examples.to_json(orient="records", lines=True).encode()).hexdigest(),
            "ids": hashlib.sha256(tokens["ids"].tobytes()).hexdigest(),
        },
        "shared_identities": {f"{one}/{other}": len(names[one] & names[other]) for one, other in combinations(SPLITS, 2)},
    }
