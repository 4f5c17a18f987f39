"""A mechanism with parameters of its own, as a block of the decoder holds them."""

from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from glint.model.layout import AS_DECODED, Indexing, Layout, Rows
from glint.model.mechanism import Attention, FeedForward, Parameters, Weights
from glint.model.rotary import rotary
from tests.mechanisms.weights import RECIPE, SIZE

ROTARY = rotary(RECIPE.context, SIZE, RECIPE.rope_base, torch.device("cpu"))
A = TypeVar("A", bound=Attention)
F = TypeVar("F", bound=FeedForward)


class Held(nn.Module):
    """The tensors that a mechanism gives to its block, by its names."""

    def __init__(self, tensors: Parameters, matrices: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.matrices = matrices
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)

    def weights(self, dtype: torch.dtype = torch.float32) -> Weights:
        tensors = [*self.named_parameters(), *self.named_buffers()]
        return {name: own.to(dtype) if name in self.matrices else own for name, own in tensors}


class HeldAttention(Held, Generic[A]):
    """Attention by itself: tokens in, change out, in the dtype of the tokens."""

    def __init__(self, mechanism: A) -> None:
        super().__init__(mechanism.parameters(), mechanism.matrices)
        self.mechanism = mechanism

    def forward(self, h_ND: Tensor, layout: Layout, kept: list[Any] | None = None, indexing: Indexing = AS_DECODED) -> Tensor:
        return self.mechanism.forward(h_ND, self.weights(h_ND.dtype), Rows(layout, ROTARY, indexing), kept)

    def step(self, h_RD: Tensor, positions_R: Tensor, kept: Any) -> Tensor:
        return self.mechanism.step(h_RD, self.mechanism.decoding(self.weights(h_RD.dtype)), positions_R, ROTARY, kept)


class HeldFeedForward(Held, Generic[F]):
    """A feed-forward by itself, in the dtype of the tokens; the residual is float32."""

    def __init__(self, mechanism: F) -> None:
        super().__init__(mechanism.parameters(), mechanism.matrices)
        self.mechanism = mechanism

    def forward(self, x_ND: Tensor, residual_ND: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        residual_ND = torch.zeros(x_ND.shape) if residual_ND is None else residual_ND
        return self.mechanism.forward(residual_ND, x_ND, self.weights(x_ND.dtype))
