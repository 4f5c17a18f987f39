"""The RL recipe: every switch between the published algorithm and its textbook forms."""

from typing import Literal, Self

from pydantic import Field, model_validator

from glint.config.base import Decay, Positive, Rate, Slice, Strict, Weight
from glint.config.execution import ExecutionRecipe


class RewardRecipe(Strict):
    """What a verdict is worth."""

    kind: Literal["binary", "fraction"] = "binary"
    """binary: all hidden cases or nothing; fraction: the share of cases passed."""
    passed: float = 1.0
    """Reward of a program that passes (times the fraction, where kind is fraction)."""
    failed: float = 0.0
    """Reward of a valid program that is wrong."""
    invalid: float = -0.1
    """Reward of a text that is rejected before it runs."""


class ReplayRecipe(Strict):
    """Pretraining rows mixed into each update, against forgetting."""

    weight: Weight = 0.0
    """Weight of their cross-entropy; 0 turns replay off."""
    families: tuple[str, ...] = ()
    """Families of the rows; empty: those that RL does not train."""
    rows: Positive = 8
    """Rows an update."""


class KLRecipe(Strict):
    """Divergence from the frozen start, in the loss."""

    weight: Weight = 0.0
    """Weight of the k3 estimate, mean over response tokens; 0 turns it off."""


class RLRecipe(Strict):
    """Reinforcement learning with executable rewards; the defaults are the published RLOO."""

    families: tuple[str, ...] = Field(default=("increment", "double", "even"), min_length=1)
    """Families whose prompts are trained."""
    tasks_per_family: Positive | None = None
    """RL tasks a family that give the prompts, the first ones; none: all."""
    groups: Positive = 96
    """Prompts, one group each, in an order shuffled by the seed."""
    group_size: int = Field(default=16, ge=2)
    """Completions a prompt (G)."""
    max_new_tokens: Positive = 48
    """Longest completion."""
    temperature: Rate = 0.35
    """Sampling temperature."""
    log_prob_temperature: Literal["one", "sampling"] = "one"
    """Temperature at which log-probabilities are scored; published: one, although sampling is colder. Textbook: sampling."""
    baseline: Literal["leave_one_out", "group_normalised", "group_mean", "none"] = "leave_one_out"
    """leave_one_out: RLOO; group_normalised: GRPO, (r - mean) / (std + std_epsilon); group_mean: r - mean; none: r."""
    std_ddof: Literal[0, 1] = 1
    """Degrees of freedom taken off in GRPO's standard deviation."""
    std_epsilon: Weight = 1.0e-4
    """Added to GRPO's standard deviation."""
    length: Literal["token_mean", "sum", "batch_tokens"] = "token_mean"
    """How token log-probabilities make a sequence's: the mean (published), the sum (textbook), or the sum over the tokens of the group."""
    stop: Literal["parses", "eos"] = "parses"
    """parses: a sample ends once it is the wanted function and ends in a newline (published); eos: it ends at the model's own eos."""
    scope: Literal["all", "last_block", "last_block_and_head"] = "last_block_and_head"
    """Trained tensors; published: last block, final norm and the tied embedding/head (of an untied model the head alone)."""
    tied_gradient: Literal["both", "head_only"] = "both"
    """both: the tied matrix learns as head and, through all blocks, as input embedding; head_only skips the second path."""
    zero_spread: Literal["skip", "update"] = "skip"
    """What a group does whose rewards are all equal."""
    shuffle_rewards: bool = False
    """Negative control: permute the rewards within each group before advantages are taken."""
    lr: Rate = 5.0e-5
    """Learning rate of AdamW."""
    head_lr_factor: Rate = 1.0
    """Learning rate of the output head, the tied matrix, relative to lr."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """AdamW's decay rates."""
    weight_decay: Weight = 0.0
    """AdamW's decay."""
    clip: Rate = 1.0
    """Largest gradient norm."""
    reward: RewardRecipe = Field(default_factory=RewardRecipe)
    """What a verdict is worth."""
    kl: KLRecipe = Field(default_factory=KLRecipe)
    """Divergence from the frozen start."""
    replay: ReplayRecipe = Field(default_factory=ReplayRecipe)
    """Pretraining rows in each update."""
    checkpoint_every: Positive = 24
    """Groups between checkpoints."""

    @property
    def rollouts(self) -> int:
        """Return the completions that a run draws."""
        return self.groups * self.group_size

    def checkpoints(self) -> tuple[int, ...]:
        """Return the group counts at which a checkpoint is written; the last group is always one."""
        return tuple(sorted({*range(self.checkpoint_every, self.groups + 1, self.checkpoint_every), self.groups}))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tied_gradient == "head_only" and self.scope == "all":
            raise ValueError(
                "tied_gradient head_only needs a scope that ends at the last block; with scope all the gradient passes every block anyway"
            )
        return self


class RLJob(Slice):
    """Reinforcement learning of one arm and one seed."""

    rl: RLRecipe
    execution: ExecutionRecipe
