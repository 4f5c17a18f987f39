"""Packed tokens as padded rows, for mechanisms that walk along positions and know no rotary turns."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glint.model.layout import Indices, Rows


@dataclass(frozen=True)
class Span:
    """Tokens that stand side by side: the shared prompt as one row, or all rows after it."""

    tokens: slice
    """Their packed indices."""
    start: int
    """Position of the first token of every row."""
    rows: int
    indices: Indices

    def pad(self, x_N: Tensor) -> Tensor:
        """Return these tokens of packed `x_N` [N, ...] as rows [R, T, ...]; behind a row's end stand copies of a real token."""
        return self.indices.pad(x_N[self.tokens]).unflatten(0, (self.rows, -1))

    def whole(self, x_N: Tensor) -> Tensor:
        """Return rows from position 0 on [R, start + T, ...]: before the rows' own tokens, a copy of the shared prompt's."""
        own = self.pad(x_N)
        return torch.cat([x_N[: self.start].expand(self.rows, *x_N[: self.start].shape), own], 1) if self.start else own

    def unpad(self, x_RT: Tensor) -> Tensor:
        """Return rows [R, T, ...] as these packed tokens."""
        return self.indices.unpad(x_RT.flatten(0, 1))


def spans(rows: Rows) -> list[Span]:
    """Return the prompt (if any), and the rows."""
    ends = [segment.first for segment in rows.segments[1:]] + [rows.layout.tokens]
    return [
        Span(slice(segment.first, end), segment.first, segment.rows, segment.indices)
        for segment, end in zip(rows.segments, ends, strict=True)
    ]
