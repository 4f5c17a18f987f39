"""The slice of a recipe that one job depends on. Results are keyed by the digest of their slice, so that studies share jobs."""

from typing import Self

from glint.config.base import Natural, Positive, Seed, Strict
from glint.config.corpus import CorpusRecipe
from glint.config.evaluation import EvaluationRecipe
from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe
from glint.config.pretraining import PretrainingRecipe
from glint.config.rl import RLRecipe
from glint.config.selection import SelectionRecipe
from glint.config.tree import Recipe


class CorpusJob(Strict):
    """Draw the examples of one training seed."""

    corpus: CorpusRecipe
    seed: Seed


class PretrainJob(Strict):
    """Train one seed from random weights to `steps`, keeping `checkpoints`."""

    model: ModelRecipe
    pretraining: PretrainingRecipe
    execution: ExecutionRecipe
    seed: Seed
    steps: Positive
    checkpoints: tuple[Natural, ...]

    @classmethod
    def of(cls, recipe: Recipe, seed: int) -> Self:
        """Return the job of `seed`; the curve's settings enter only through `steps` and `checkpoints`."""
        plan = recipe.pretraining
        return cls(
            model=recipe.model,
            pretraining=plan.model_copy(update={"curve": type(plan.curve)()}),
            execution=recipe.execution,
            seed=seed,
            steps=plan.last_step(seed),
            checkpoints=plan.checkpoints(seed),
        )


class EvaluateJob(Strict):
    """Ask checkpoints for completions of the tasks of one split, and judge them."""

    evaluation: EvaluationRecipe
    execution: ExecutionRecipe
    split: str
    sampled: bool
    """Whether sampled completions are drawn beside the greedy one."""
    families: tuple[str, ...] = ()
    """Families asked; empty: all of the corpus."""
    seed: Seed


class SelectJob(Strict):
    """Choose the checkpoint from which RL starts."""

    selection: SelectionRecipe
    candidates: tuple[Positive, ...]
    seed: Seed


class RLJob(Strict):
    """Reinforcement learning of one arm and one seed."""

    rl: RLRecipe
    execution: ExecutionRecipe
    seed: Seed
