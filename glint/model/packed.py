"""Matrices that few rows are multiplied by again and again, kept as oneDNN reads them: `torch.mm` brings them there at every product.

Axes: R rows, K inputs, N outputs.
"""

import torch
from torch import Tensor

from glint.device import packs

ROWS = 16
"""For about so many rows the layout is chosen; others are multiplied as well."""


class Packed:
    """What multiplies rows by a transposed matrix; later changes of the matrix may not reach it."""

    def __init__(self, matrix_NK: Tensor) -> None:
        matrix_NK = matrix_NK.detach()
        self.onednn = packs(matrix_NK.device, matrix_NK.dtype)
        if self.onednn:
            self.matrix = torch.ops.mkldnn._reorder_linear_weight(matrix_NK.contiguous(), ROWS)
        else:
            self.matrix = matrix_NK.t().contiguous()

    def __deepcopy__(self, memo: dict[int, object]) -> "Packed":
        """Return itself: nothing writes into it, and oneDNN's layout cannot be copied."""
        return self

    def __call__(self, x_RK: Tensor) -> Tensor:
        """Return the product [R, N] in the dtype of both."""
        if self.onednn:
            product_RN: Tensor = torch.ops.mkldnn._linear_pointwise.default(x_RK, self.matrix, None, "none", [], "")
            return product_RN
        return x_RK @ self.matrix
