"""pass@k against enumeration of every subset."""

from itertools import combinations

import pytest

from glint.statistics.pass_at_k import pass_at_k


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 1), (5, 3), (8, 8), (7, 4)])
def test_equals_the_share_of_subsets_that_hold_a_correct_sample(n, k):
    for correct in range(n + 1):
        subsets = list(combinations([i < correct for i in range(n)], k))
        assert pass_at_k(correct, n, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_1_is_the_share_correct():
    assert pass_at_k([0, 2, 8], 8, 1) == pytest.approx([0, 0.25, 1])


@pytest.mark.parametrize("k", [0, 9])
def test_k_outside_the_samples_is_an_error(k):
    with pytest.raises(ValueError, match=f"pass@{k} .* 8 samples"):
        pass_at_k([1], 8, k)
