"""Attention whose queries, keys and values come out of one product, and whose heads go into another."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from glint.config.model import ModelRecipe
from glint.model.layout import Rows
from glint.model.mechanism import NO_STARTS, Parameters, Weights
from glint.model.rotary import Rotary


class QKVAttention(ABC):
    """The two products; a subclass says how a query finds its values."""

    matrices = ("qkv", "out")
    starts = NO_STARTS

    def __init__(self, recipe: ModelRecipe) -> None:
        self.recipe = recipe

    def parameters(self) -> Parameters:
        """Return `qkv` [3D, D] (rows: q, then k, then v; heads contiguous) and `out` [D, D]."""
        width = self.recipe.width
        return {"qkv": nn.Parameter(torch.empty(3 * width, width)), "out": nn.Parameter(torch.empty(width, width))}

    def decoding(self, weights: Weights) -> Weights:
        """Return both matrices transposed."""
        return {**weights, **{name: weights[name].t().contiguous() for name in self.matrices}}

    def forward(self, x_ND: Tensor, weights: Weights, rows: Rows, kept: list[Any] | None) -> Tensor:
        """Return the change [N, D] of packed tokens; see `Attention`."""
        return self.attend(x_ND @ weights["qkv"].t(), rows, kept) @ weights["out"].t()

    def step(self, x_RD: Tensor, weights: Weights, positions_R: Tensor, rotary: Rotary, kept: Any) -> Tensor:
        """Add one position a row to `kept`, in place, and return its change [R, D]; `weights` are those of `decoding`."""
        return self.attend_step(x_RD @ weights["qkv"], positions_R, rotary, kept) @ weights["out"]

    @abstractmethod
    def attend(self, qkv_NX: Tensor, rows: Rows, kept: list[Any] | None) -> Tensor:
        """Return the attended values [N, D] of packed projections."""

    @abstractmethod
    def attend_step(self, qkv_RX: Tensor, positions_R: Tensor, rotary: Rotary, kept: Any) -> Tensor:
        """Add one position a row to `kept`, in place, and return its attended values [R, D]."""
