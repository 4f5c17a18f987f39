"""A study is data: a base recipe, arms that change one value each, seeds, and the analysis written before the run."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from glint.config.base import Name, Positive, Seed, Share, Strict


class Arm(Strict):
    """One condition: a partial recipe laid over the base."""

    corpus: dict[str, Any] = Field(default_factory=dict)
    """Changed corpus keys."""
    model: dict[str, Any] = Field(default_factory=dict)
    """Changed model keys."""
    pretraining: dict[str, Any] = Field(default_factory=dict)
    """Changed pretraining keys."""
    selection: dict[str, Any] = Field(default_factory=dict)
    """Changed selection keys."""
    rl: dict[str, Any] = Field(default_factory=dict)
    """Changed RL keys."""
    evaluation: dict[str, Any] = Field(default_factory=dict)
    """Changed evaluation keys."""
    several_changes: str | None = Field(default=None, min_length=1)
    """Why this arm changes more than one value; without it such an arm is refused."""

    def overrides(self) -> dict[str, dict[str, Any]]:
        """Return the non-empty sections of this arm."""
        return {name: section for name, section in self.model_dump(exclude={"several_changes"}).items() if section}


class Analysis(Strict):
    """What will be computed, fixed before the run."""

    metric: Literal["greedy_pass1", "sampled_exact", "pass8", "cases"] = "greedy_pass1"
    """The primary outcome."""
    families: tuple[str, ...] = ()
    """Families over which the primary outcome is averaged; empty: those that RL trains."""
    confidence: float = Field(default=0.95, gt=0, lt=1)
    """Level of every interval."""
    resamples: Positive = 10000
    """Draws of the crossed bootstrap."""
    null_margin: Share = 0.1
    """A claim of no difference replicates if our interval lies within plus or minus this."""
    control: str | None = None
    """Arm that must gain nothing (the negative control)."""


class Study(Strict):
    """One question, its arms and its seeds."""

    question: str = Field(min_length=1)
    """What the study asks, in one sentence."""
    kind: Literal["rl"] = "rl"
    """Which pipeline answers it."""
    recipe: str = "main"
    """Name of the base recipe."""
    arms: dict[Name, Arm] = Field(min_length=1)
    """Conditions by name; an empty arm is the base recipe itself."""
    seeds: tuple[Seed, ...] = Field(min_length=1)
    """Training seeds; each is its own pretraining and its own RL."""
    split: Literal["dev", "confirm", "final"] = "confirm"
    """Where the reported evaluation happens."""
    analysis: Analysis = Field(default_factory=Analysis)
    """The plan."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        twice = sorted({seed for seed in self.seeds if self.seeds.count(seed) > 1})
        if twice:
            raise ValueError(f"seeds {twice} are given twice")
        if self.analysis.control is not None and self.analysis.control not in self.arms:
            raise ValueError(f"analysis.control {self.analysis.control!r} is not an arm; arms: {', '.join(self.arms)}")
        return self
