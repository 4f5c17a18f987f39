"""The corpus recipe: which function families, how many tasks a split."""

from pydantic import Field

from glint.config.base import Positive, Seed, Slice, Strict

ALL_FAMILIES = ("increment", "double", "square", "absolute", "nonnegative", "even", "reverse", "list_sum")


class CorpusRecipe(Strict):
    """Tasks of one-line functions. Pretraining and RL tasks are drawn from the run's seed, evaluation tasks from `evaluation_seed`."""

    families: tuple[str, ...] = Field(default=ALL_FAMILIES, min_length=1)
    """Function families, in reporting order."""
    pretrain_examples: Positive = 12800
    """Fresh pretraining examples (batch x steps of the longest run)."""
    rl_tasks_per_family: Positive = 32
    """Identities a family that RL may train on."""
    dev_tasks_per_family: Positive = 8
    """Tasks a family for choosing checkpoints and drawing curves."""
    confirm_tasks_per_family: Positive = 8
    """Tasks a family for the reported result; nothing is chosen on them."""
    final_tasks_per_family: Positive = 8
    """Tasks a family kept back for a last look."""
    cases_per_task: Positive = 3
    """Hidden reward cases drawn fresh for each task."""
    evaluation_seed: Seed = 20261
    """Seed of dev, confirm and final: all training seeds meet the same tasks, so seeds and tasks are crossed."""


class CorpusJob(Slice):
    """Draw the examples of one training seed."""

    corpus: CorpusRecipe
