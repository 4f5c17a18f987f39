"""Where packed tokens stand: rows without padding, which may continue one shared prompt.

Everything but attention treats tokens one by one, so tokens are kept packed, and a prompt that G completions share is computed once.
Only attention sees rows: the compiled loops walk along them, the formulas pad them to the longest.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glint.model.rotary import Rotary

BF16_ROW_BLOCK = 32
"""On a CPU the first bf16 product of a new shape costs milliseconds (a kernel is generated), so row counts come in multiples of this."""


def row_block(dtype: torch.dtype) -> int:
    """Return the number of which row counts should be multiples, so that their kernels are likely to exist already."""
    return BF16_ROW_BLOCK if dtype == torch.bfloat16 else 1


@dataclass(frozen=True)
class Layout:
    """Rows of packed tokens. Where `prompt` is positive, the first `prompt` tokens precede every row."""

    lengths: tuple[int, ...]
    """Own tokens of each row."""
    prompt: int = 0
    """Length of the shared prompt (P), stored once, before the rows."""

    @property
    def rows(self) -> int:
        """Number of rows (R)."""
        return len(self.lengths)

    @property
    def longest(self) -> int:
        """Positions of a padded row (T)."""
        return max(self.lengths)

    @property
    def tokens(self) -> int:
        """Number of packed tokens (N), the shared prompt included."""
        return self.prompt + sum(self.lengths)

    @property
    def last_tokens(self) -> list[int]:
        """Packed index of the last token of each row."""
        ends, end = [], self.prompt
        for length in self.lengths:
            end += length
            ends.append(end - 1)
        return ends

    def indices(self, device: torch.device) -> "Indices":
        """Return the index tensors of this layout on `device`."""
        lengths_R = torch.tensor(self.lengths)
        starts_R = torch.cumsum(lengths_R, 0) - lengths_R
        steps_T = torch.arange(self.longest)
        real_RT = steps_T < lengths_R[:, None]
        pad_RT = torch.where(real_RT, starts_R[:, None] + steps_T, 0)
        real_N = real_RT.flatten().nonzero().squeeze(1)
        identity = bool(real_RT.all())
        return Indices(pad_RT.flatten().to(device), real_N.to(device), real_RT.to(device), identity)


@dataclass(frozen=True)
class Indices:
    """A layout's row tokens as index tensors (the shared prompt is not part of them)."""

    pad_index: Tensor
    """[R*T] row token that fills a padded slot."""
    real_index: Tensor
    """Padded slot of each row token."""
    real_RT: Tensor
    """Whether a padded slot is a real token."""
    identity: bool
    """Whether rows are equally long, so that padding changes nothing."""

    def pad(self, x: Tensor) -> Tensor:
        """Return row tokens [rows' tokens, ...] as padded slots [R*T, ...].

        Padding holds copies of the first token: causal attention never shows it to a real position.
        """
        return x if self.identity else x.index_select(0, self.pad_index)

    def unpad(self, x: Tensor) -> Tensor:
        """Return padded slots [R*T, ...] as row tokens."""
        return x if self.identity else x.index_select(0, self.real_index)


@dataclass(frozen=True)
class Segment:
    """Tokens that attention sees side by side: the shared prompt as one row, or all rows after it."""

    first: int
    """Packed index of the first token."""
    rows: int
    longest: int
    indices: Indices
    angles: Tensor
    """[1, 1, T, K/2] rotary angles of the padded positions."""

    def split(self, qkv_NX: Tensor, heads: int) -> tuple[Tensor, ...]:
        """Return q, k and v of the segment's packed projections as padded rows, [R, H, T, K] each."""
        return self.indices.pad(qkv_NX).view(self.rows, self.longest, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind()

    def merge(self, attended_RHTK: Tensor) -> Tensor:
        """Return padded rows as packed tokens [N, H*K]."""
        return self.indices.unpad(attended_RHTK.transpose(1, 2).flatten(0, 1).flatten(1))


@dataclass(frozen=True)
class Indexing:
    """How attention that chooses its positions by an indexer goes through one pass."""

    dense: bool = False
    """Let every token see all before it: the indexer's warm-up."""
    divergences: list[Tensor] | None = None
    """Where it is a list, each indexer appends its loss of every token [N]."""


AS_DECODED = Indexing()


@dataclass(frozen=True)
class Rows:
    """The rows of a layout, in the form that either kind of attention takes, and the turns of all positions."""

    layout: Layout
    rotary: Rotary
    indexing: Indexing = AS_DECODED

    @cached_property
    def segments(self) -> list[Segment]:
        """The prompt (if any), and the rows."""
        layout, angles = self.layout, self.rotary.angles
        segments = []
        if layout.prompt:
            alone = Layout((layout.prompt,))
            segments.append(Segment(0, 1, layout.prompt, alone.indices(angles.device), angles[None, None, : layout.prompt]))
        own = angles[None, None, layout.prompt : layout.prompt + layout.longest]
        segments.append(Segment(layout.prompt, layout.rows, layout.longest, layout.indices(angles.device), own))
        return segments

    def spans(self, x_NX: Tensor) -> tuple[Tensor, ...]:
        """Return the packed tokens of each segment."""
        return x_NX.tensor_split([segment.first for segment in self.segments[1:]])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """[R+1] packed index of each row's first token, and of the end."""
        return np.array(list(itertools.accumulate(self.layout.lengths, initial=self.layout.prompt)))
