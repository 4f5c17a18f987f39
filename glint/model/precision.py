"""Which products run in the compute dtype: those of a tensor that already has it."""

from torch import Tensor


def product(x_ND: Tensor, weight: Tensor) -> Tensor:
    """Return x weight^T in the dtype of `x_ND`; the gradient of `weight` keeps the weight's own."""
    return x_ND @ weight.to(x_ND.dtype).t()
