"""The compiled loops' arithmetic, against float64 and PyTorch's own rounding."""

import numpy as np
import pytest
import torch

from glint.model import kernels
from glint.model.compiled import array


@kernels.elementwise
def exp_of(x: kernels.Array, out: kernels.Array) -> None:
    for i in range(x.size):
        out[i] = kernels.exp(x[i])


@kernels.elementwise
def copy_of(x: kernels.Array, out: kernels.Array) -> None:
    for i in range(x.size):
        out[i] = kernels.narrow(kernels.widen(x[i]), out[i])


def test_exp_is_accurate_to_the_last_bits() -> None:
    x = np.linspace(-87, 88, 1_000_003).astype(np.float32)
    out = np.empty_like(x)
    exp_of(x, out)
    assert np.abs(out / np.exp(x.astype(np.float64)) - 1).max() < 2e-7


def test_exp_beyond_its_range() -> None:
    x = np.array([-1e30, -88, 89, 1e30, np.nan], np.float32)
    out = np.empty_like(x)
    exp_of(x, out)
    assert (out[:2] < 1e-37).all()
    assert (out[2:4] > 1e38).all()
    assert np.isfinite(out[:4]).all()
    assert np.isnan(out[4])


def test_rounding_to_bfloat16_is_that_of_torch() -> None:
    ties = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3.4e38, float("inf"), float("-inf"), 0.0, -0.0, 1e-40])
    x = torch.cat([torch.randn(100_000, generator=torch.Generator().manual_seed(1)) * 10, ties])
    rounded = torch.empty(len(x), dtype=torch.bfloat16)
    copy_of(array(x), array(rounded))
    assert torch.equal(rounded, x.bfloat16())
    back = torch.empty_like(x)
    copy_of(array(rounded), array(back))
    assert torch.equal(back, rounded.float())


def test_nan_survives_rounding() -> None:
    rounded = torch.zeros(1, dtype=torch.bfloat16)
    copy_of(np.array([np.nan], np.float32), array(rounded))
    assert rounded.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nan_reaches_the_output_of_every_mechanism(dtype: torch.dtype) -> None:
    gate_value = torch.ones(2, 8, dtype=dtype)
    gate_value[0, 0] = float("nan")
    product = torch.empty(2, 4, dtype=dtype)
    kernels.gate(array(gate_value), kernels.UNLIMITED, array(product))
    assert product.isnan().tolist() == [[True, False, False, False], [False] * 4]
    normed, scale = torch.empty(2, 8, dtype=dtype), torch.empty(2)
    kernels.rms_norm(array(gate_value.float()), np.ones(8, np.float32), 1e-6, array(normed), array(scale))
    assert normed.isnan().any(1).tolist() == [True, False]


def test_experts_are_chosen_in_falling_order_and_ties_go_to_the_first() -> None:
    logits = np.array([[0, 3, 1, 3], [2, -1, 5, 0]], np.float32)
    experts, weights = np.empty((2, 2), np.int64), np.empty((2, 2), np.float32)
    kernels.choose_experts(logits, experts, weights)
    assert experts.tolist() == [[1, 3], [2, 0]]
    assert weights == pytest.approx(np.array([[0.5, 0.5], [1 / (1 + np.exp(-3)), 1 / (1 + np.exp(3))]]))


def test_a_router_logit_that_is_nan_reaches_the_weights() -> None:
    logits = np.array([[0, np.nan, 1, 3], [np.nan, 9, 5, 0]], np.float32)
    experts, weights = np.empty((2, 2), np.int64), np.empty((2, 2), np.float32)
    kernels.choose_experts(logits, experts, weights)
    assert experts.tolist() == [[1, 3], [0, 1]]
    assert np.isnan(weights).any(axis=1).all()
