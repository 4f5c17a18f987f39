"""At which steps a run that keeps no checkpoint files is scored."""

from itertools import pairwise


def check_checkpoints(checkpoints: tuple[int, ...], steps: int) -> None:
    """Raise ValueError unless `checkpoints` ascend from 0, before the first step, to the last of `steps`."""
    listed = list(checkpoints)
    if any(later <= earlier for earlier, later in pairwise(listed)):
        raise ValueError(f"checkpoints {listed} must ascend")
    if (listed[0], listed[-1]) != (0, steps):
        raise ValueError(f"checkpoints {listed} must begin with 0 and end with the last step, {steps}")
