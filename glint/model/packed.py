"""Matrices that few rows are multiplied by again and again, kept as oneDNN reads them: `torch.mm` brings them there at every product."""

from collections.abc import Callable

import torch
from torch import Tensor

from glint.device import packs

ROWS = 16
"""For about so many rows the layout is chosen; others are multiplied as well."""
Product = Callable[[Tensor], Tensor]


def product(matrix_NK: Tensor) -> Product:
    """Return what multiplies rows [R, K] by the transposed matrix, to [R, N]; later changes of the matrix may not reach it."""
    matrix_NK = matrix_NK.detach()
    if not packs(matrix_NK.device, matrix_NK.dtype):
        matrix_KN = matrix_NK.t().contiguous()
        return lambda x_RK: x_RK @ matrix_KN
    packed = torch.ops.mkldnn._reorder_linear_weight(matrix_NK.contiguous(), ROWS)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda x_RK: multiply(x_RK, packed, None, "none", [], "")
