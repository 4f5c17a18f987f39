"""The largest of some scores, equal ones in a stated order, so that training and decoding choose alike."""

from torch import Tensor


def first_largest(scores: Tensor, count: int) -> Tensor:
    """Return the indices of the `count` largest scores along the last axis, largest first, of equal scores the lowest index first.

    Where there are fewer than `count` scores, all are returned.
    """
    signless = scores + 0.0  # -0.0 becomes 0.0: a sort by bits would tell them apart
    return signless.sort(dim=-1, descending=True, stable=True).indices[..., :count]
