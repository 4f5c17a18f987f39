"""Rows of token ids as packed tensors."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glint.model.layout import Layout, row_block
from glint.tasks.tokenizer import PAD

Row = Sequence[int] | NDArray[np.uint16]
IGNORED = -100
"""Target of a position that carries no loss."""


def rounded_layout(lengths: Sequence[int], dtype: torch.dtype, context: int, prompt: int = 0) -> Layout:
    """Return a layout whose rows are lengthened (with padding behind their end) until the token count is one that kernels exist for.

    First up to the longest row, then the last one up to the `context`; where that does not suffice, the count stays as it is.
    """
    rows = list(lengths)
    longest = max(rows)
    missing = -(prompt + sum(rows)) % row_block(dtype)
    for index, length in enumerate(rows):
        added = min(longest - length, missing)
        rows[index] += added
        missing -= added
    if prompt + rows[-1] + missing <= context:
        rows[-1] += missing
    return Layout(tuple(rows), prompt)


def pack(rows: Sequence[Row], layout: Layout, fill: int = PAD) -> Tensor:
    """Return the ids of `rows` packed as `layout` says, rows that are shorter filled up."""
    packed = np.full(sum(layout.lengths), fill, dtype=np.int64)
    start = 0
    for row, length in zip(rows, layout.lengths, strict=True):
        packed[start : start + len(row)] = row
        start += length
    return torch.from_numpy(packed)


def next_token_batch(rows: Sequence[Row], dtype: torch.dtype, context: int) -> tuple[Tensor, Tensor, Layout]:
    """Return inputs [N], targets [N] (IGNORED behind a row's end) and the layout that predict each token from those before it."""
    layout = rounded_layout([len(row) - 1 for row in rows], dtype, context)
    return pack([row[:-1] for row in rows], layout), pack([row[1:] for row in rows], layout, IGNORED), layout
