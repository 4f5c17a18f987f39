"""Every generator of a job, derived from its recipe's seed and a name, so that no draw depends on what was drawn elsewhere."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def _sequence(seed: int, names: tuple[str | int, ...]) -> np.random.SeedSequence:
    words = np.frombuffer(hashlib.sha256("/".join(map(str, names)).encode()).digest(), dtype=np.uint32)
    return np.random.SeedSequence([seed, *words.tolist()])


def rng(seed: int, *names: str | int) -> np.random.Generator:
    """Return numpy's generator for one purpose of one job, e.g. `rng(42, "rl", "order")`."""
    return np.random.default_rng(_sequence(seed, names))


def torch_generator(seed: int, *names: str | int) -> "torch.Generator":
    """Return torch's CPU generator for one purpose; draws are made on the CPU so that every device sees the same ones."""
    import torch  # seconds to import, and half of the jobs need numpy's generators alone

    generator = torch.Generator(device="cpu")
    generator.manual_seed(int(_sequence(seed, names).generate_state(1, np.uint64)[0] >> np.uint64(1)))
    return generator
