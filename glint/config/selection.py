"""The rule that selects the checkpoint from which RL starts; it sees dev tasks only."""

from typing import Self

from pydantic import model_validator

from glint.config.base import Positive, Share, Slice, Strict


class SelectionRecipe(Strict):
    """The first checkpoint whose greedy dev pass rate lies in [low, high]; if none does, the nearest below."""

    families: tuple[str, ...] = ()
    """Families whose dev tasks count; empty: all of the corpus."""
    low: Share = 0.2
    """Lowest pass rate accepted: some reward must be there to learn from."""
    high: Share = 0.6
    """Highest pass rate accepted: headroom must be left."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} exceeds high {self.high}")
        return self


class SelectJob(Slice):
    """Choose the checkpoint from which RL starts."""

    selection: SelectionRecipe
    candidates: tuple[Positive, ...]
