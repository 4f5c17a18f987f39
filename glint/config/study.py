"""A study is data: a base recipe, arms that change one value each, seeds, and the analysis written before the run."""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from glint.config.base import Name, Positive, Seed, Share, Strict
from glint.config.errors import unknown
from glint.config.presets import written_out

SECTIONS = {
    "rl": ("corpus", "model", "pretraining", "selection", "rl", "evaluation"),
    "pretraining": ("model", "pretraining", "expressions"),
    "vision": ("model", "vision"),
    "architecture": ("model",),
    "recall": ("model",),
}
"""Parts of the recipe that the arms of a study may change, by the study's kind: those that its jobs read, and of the kinds whose arms
must meet the same tokens, architecture and recall, the model alone."""
RL_ONLY = ("start_seed", "split", "tasks_per_family", "curve")
RL_ONLY_ANALYSIS = ("metric", "families", "control", "equal_rollouts")


class Arm(Strict):
    """One condition: a partial recipe laid over the base."""

    corpus: dict[str, Any] = Field(default_factory=dict)
    """Changed corpus keys."""
    model: dict[str, Any] = Field(default_factory=dict)
    """Changed model keys, or the name of a preset, or with `preset` among the keys what that preset changes too."""
    pretraining: dict[str, Any] = Field(default_factory=dict)
    """Changed pretraining keys."""
    selection: dict[str, Any] = Field(default_factory=dict)
    """Changed selection keys."""
    rl: dict[str, Any] = Field(default_factory=dict)
    """Changed RL keys."""
    evaluation: dict[str, Any] = Field(default_factory=dict)
    """Changed evaluation keys."""
    expressions: dict[str, Any] = Field(default_factory=dict)
    """Changed expressions keys."""
    vision: dict[str, Any] = Field(default_factory=dict)
    """Changed vision keys."""
    several_changes: str | None = Field(default=None, min_length=1)
    """Why this arm changes more than one value; without it such an arm is refused."""

    @field_validator("model", mode="before")
    @classmethod
    def _preset_means_its_values(cls, given: Any) -> Any:
        return written_out(given)

    def overrides(self) -> dict[str, dict[str, Any]]:
        """Return the non-empty sections of this arm."""
        return {name: section for name, section in self.model_dump(exclude={"several_changes"}).items() if section}


class Contrast(Strict):
    """Two arms, compared seed by seed."""

    arm: str
    """The arm whose scores count as plus."""
    against: str
    """The arm whose scores are taken off."""
    steps: tuple[Positive, ...] = Field(min_length=1)
    """Checkpoints at which they are compared."""
    against_steps: tuple[Positive, ...] | None = Field(default=None, min_length=1)
    """Of a study of kind architecture: checkpoints of `against`, one for each of `steps`; none: the same. At a constant learning rate the
    checkpoint of an earlier step is the run with fewer FLOPs."""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Return the step of `arm` and that of `against` of each comparison."""
        return tuple(zip(self.steps, self.against_steps or self.steps, strict=True))

    @model_validator(mode="after")
    def _steps_pair_up(self) -> Self:
        if self.against_steps is not None and len(self.against_steps) != len(self.steps):
            raise ValueError(f"against_steps {list(self.against_steps)} must name one step for each of the steps {list(self.steps)}")
        return self


class Analysis(Strict):
    """What will be computed, fixed before the run."""

    metric: Literal["greedy_pass1", "sampled_exact", "pass8", "cases"] = "greedy_pass1"
    """The primary outcome of a study of kind rl; of kind pretraining it is always the share of target bytes predicted (byte_accuracy), of
    kind vision the share of held-out images whose digit is named, of kind architecture the held-out loss,
    of kind recall the share of names recalled."""
    families: tuple[str, ...] = ()
    """Families over which the primary outcome is averaged; empty: those that RL trains."""
    contrasts: dict[Name, Contrast] = Field(default_factory=dict)
    """Comparisons of a study of kind pretraining, vision, architecture or recall, by name."""
    confidence: float = Field(default=0.95, gt=0, lt=1)
    """Level of every interval."""
    resamples: Positive = 10000
    """Draws of the crossed bootstrap."""
    null_margin: Share = 0.1
    """A claim of no difference replicates if our interval lies within plus or minus this."""
    control: str | None = None
    """Arm that must gain nothing (the negative control)."""
    equal_rollouts: bool = False
    """Refuse arms of a study of kind rl that draw more or fewer completions (groups x group_size) than the others."""

    @property
    def outcome(self) -> str:
        """Return the primary outcome of an rl study as the tables call it."""
        return "cases_greedy" if self.metric == "cases" else self.metric


class Study(Strict):
    """One question, its arms and its seeds."""

    question: str = Field(min_length=1)
    """What the study asks, in one sentence."""
    kind: Literal["rl", "pretraining", "vision", "architecture", "recall"] = "rl"
    """Which pipeline answers it. rl: does RL improve a pretrained model; pretraining: what does the order or choice of examples change;
    vision: by which path should images reach the model; architecture: which structure of the model pays;
    recall: which model recalls a name that it has read so many bytes ago."""
    recipe: str = "main"
    """Name of the base recipe."""
    arms: dict[Name, Arm] = Field(min_length=1)
    """Conditions by name; an empty arm is the base recipe itself."""
    seeds: tuple[Seed, ...] = Field(min_length=1)
    """Training seeds; each is its own pretraining and its own RL, unless start_seed is given."""
    start_seed: Seed | None = None
    """Seed whose corpus, pretraining and selected checkpoint all seeds of an rl study share; each is then its own RL alone."""
    split: Literal["dev", "confirm", "final"] = "confirm"
    """Where the reported evaluation happens."""
    tasks_per_family: Positive | None = None
    """Tasks of that split a family, the first ones; none: all."""
    curve: bool = True
    """Whether every RL checkpoint is asked for dev tasks too."""
    analysis: Analysis = Field(default_factory=Analysis)
    """The plan."""

    @property
    def base(self) -> str:
        """Return the arm that stands in front: the one that changes nothing, else the first by name."""
        return min(self.arms, key=lambda name: (bool(self.arms[name].overrides()), name))

    def in_order(self) -> tuple[str, ...]:
        """Return the arms as reports list them: the base, the others by name, the control last."""
        return tuple(sorted(self.arms, key=lambda name: (name != self.base, name == self.analysis.control, name)))

    def compared_steps(self, arm: str) -> tuple[int, ...]:
        """Return the steps at which the plan of an architecture study compares `arm`, ascending."""
        found: set[int] = set()
        for contrast in self.analysis.contrasts.values():
            for ours, theirs in contrast.pairs:
                found |= {ours} if contrast.arm == arm else {theirs} if contrast.against == arm else set()
        return tuple(sorted(found))

    def rivals(self, arm: str) -> dict[str, str]:
        """Return the arms that the gain of `arm` is set against, by the phase of the estimates; none for the control."""
        against = {"gain_over_base": self.base, "gain_over_control": self.analysis.control}
        return {phase: name for phase, name in against.items() if name is not None and arm not in (name, self.analysis.control)}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        twice = sorted({seed for seed in self.seeds if self.seeds.count(seed) > 1})
        if twice:
            raise ValueError(f"seeds {twice} are given twice")
        if self.analysis.control is not None and self.analysis.control not in self.arms:
            raise ValueError(f"analysis.control {self.analysis.control!r} is not an arm; arms: {', '.join(self.arms)}")
        return self

    @model_validator(mode="after")
    def _contrasts_name_arms(self) -> Self:
        for name, contrast in self.analysis.contrasts.items():
            for arm in (contrast.arm, contrast.against):
                if arm not in self.arms:
                    raise ValueError(unknown(f"analysis.contrasts.{name}: arm", arm, self.arms))
            if contrast.arm == contrast.against:
                raise ValueError(f"analysis.contrasts.{name} compares arm {contrast.arm} with itself")
        return self

    @model_validator(mode="after")
    def _compared_once(self) -> Self:
        """Refuse a comparison that is planned twice, either way round: it would count twice in Holm's correction and in every table."""
        seen: dict[frozenset[tuple[str, int]], str] = {}
        for name, contrast in self.analysis.contrasts.items():
            for step, against_step in contrast.pairs:
                pair = frozenset({(contrast.arm, step), (contrast.against, against_step)})
                if pair in seen:
                    raise ValueError(
                        f"analysis.contrasts.{name} compares arm {contrast.arm} at step {step} with arm {contrast.against} at step "
                        f"{against_step}, as analysis.contrasts.{seen[pair]} does already; ask once"
                    )
                seen[pair] = name
        return self

    @model_validator(mode="after")
    def _plan_suits_the_kind(self) -> Self:
        """Refuse what the study's kind would not read, so that nobody believes that it counts."""
        if self.kind == "rl":
            if self.analysis.contrasts:
                raise ValueError(
                    "analysis.contrasts belong to a study of kind pretraining, vision, architecture or recall; "
                    "an rl study compares with analysis.control"
                )
            return self
        if not self.analysis.contrasts:
            raise ValueError(f"analysis.contrasts is empty: a study of kind {self.kind} says which arms it compares, and at which steps")
        for node, names in ((self, RL_ONLY), (self.analysis, RL_ONLY_ANALYSIS)):
            for name in names:
                if getattr(node, name) != type(node).model_fields[name].default:
                    raise ValueError(f"{name} means nothing in a study of kind {self.kind}; leave it out")
        for name, contrast in self.analysis.contrasts.items():
            if self.kind != "architecture" and contrast.against_steps is not None:
                raise ValueError(
                    f"analysis.contrasts.{name}.against_steps means nothing in a study of kind {self.kind}, "
                    f"whose arms are compared at the same steps; leave it out"
                )
        return self
