"""Rotary positions: where a token stands turns its queries and keys."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Rotary:
    """The turns of RoPE: at position p pair j turns by the angle p * base^(-2j/K) (Su et al., 2021)."""

    angles: Tensor
    """[P, K/2] unit complex numbers."""

    @cached_property
    def turns(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Cosines and sines [P, K/2] for the compiled loops."""
        return np.ascontiguousarray(self.angles.real.numpy()), np.ascontiguousarray(self.angles.imag.numpy())


@lru_cache
def rotary(positions: int, head_size: int, base: float, device: torch.device) -> Rotary:
    """Return the turns at the first `positions` positions."""
    frequencies = base ** (-torch.arange(0, head_size, 2, dtype=torch.float64, device="cpu") / head_size)
    angles = torch.arange(positions, dtype=torch.float64, device="cpu")[:, None] * frequencies
    return Rotary(torch.polar(torch.ones_like(angles), angles).to(torch.complex64).to(device))


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Return float32 `x` [..., K] with its interleaved pairs turned by `angles` [..., K/2]."""
    pairs = torch.view_as_complex(x.float().contiguous().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * angles).flatten(-2)


def rotate_halves(x: Tensor, angles: Tensor) -> Tensor:
    """Return float32 `x` [..., K] with its pairs (j, j + K/2) turned by `angles` [..., K/2]: Llama's order of the same pairs."""
    first, second = x.float().chunk(2, -1)
    cos, sin = angles.real, angles.imag
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
