"""What the benchmarks share: the median after a warm-up, and the rate of products."""

import torch

from glint.speed import best_product_rate, timed


def test_the_median_is_taken_after_the_warm_up() -> None:
    calls: list[int] = []
    row = timed(lambda: calls.append(1), warm_up=2, measured=3)
    assert len(calls) == 5
    assert row.keys() == {"cpu_seconds", "wall_seconds"}


def test_products_have_a_rate_that_a_machine_can_have() -> None:
    assert 1e8 < best_product_rate(torch.float32, sizes=(128,)) < 1e15
