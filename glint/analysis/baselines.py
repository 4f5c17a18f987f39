"""What bytes predicted are worth: the share that a predictor gets right which has never seen the steps in words."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pandas as pd

BASELINES = {"commonest_byte": 0, "after_the_byte_before": 1}
"""Name, and how many bytes before the predicted one the predictor looks at."""


def baseline_rows(examples: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield, a split, the bytes that each baseline predicts, the mean over structures; it is fitted to the targets of the split `trained`.

    `examples` has a row a scored example: split, block (the structure), target.
    """
    known = examples.loc[examples["split"] == "trained", "target"]
    for name, context in BASELINES.items():
        likeliest = _fit(known, context)
        hits = examples.assign(
            hits=[_hits(target, context, likeliest) for target in examples["target"]], bytes=examples["target"].str.len()
        )
        sums = hits.groupby(["split", "block"])[["hits", "bytes"]].sum()
        for split, value in (sums["hits"] / sums["bytes"]).groupby("split").mean().items():
            yield {"split": split, "name": name, "value": value}


def _fit(targets: pd.Series, context: int) -> dict[str, str]:
    """Return the commonest byte after each context of `targets`."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for target in targets:
        for before, byte in _pairs(target, context):
            counts[before][byte] += 1
    return {before: following.most_common(1)[0][0] for before, following in counts.items()}


def _hits(target: str, context: int, likeliest: dict[str, str]) -> int:
    return sum(likeliest.get(before) == byte for before, byte in _pairs(target, context))


def _pairs(target: str, context: int) -> Iterator[tuple[str, str]]:
    """Yield each byte of `target` (ASCII) with the `context` bytes before it."""
    for place, byte in enumerate(target):
        yield target[max(0, place - context) : place], byte
