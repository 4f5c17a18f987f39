"""The unbiased estimate of pass@k (Chen et al. 2021, "Evaluating Large Language Models Trained on Code", equation 1)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import comb


def pass_at_k(correct: ArrayLike, n: int, k: int) -> NDArray[np.float64]:
    """Return 1 - C(n - c, k) / C(n, k) for each count c of `correct`: the chance that k of the n samples hold a correct one.

    Raises ValueError where k exceeds n, for then no such estimate exists.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs 1 <= k <= n, and n is {n} samples a task")
    return np.asarray(1 - comb(n - np.asarray(correct), k) / comb(n, k), dtype=np.float64)
