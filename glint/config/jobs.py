"""The slices of a recipe that the jobs of the pipeline depend on, gathered for convenience."""

from glint.config.corpus import CorpusJob
from glint.config.evaluation import EvaluateJob
from glint.config.pretraining import PretrainJob
from glint.config.rl import RLJob
from glint.config.selection import SelectJob

__all__ = ["CorpusJob", "EvaluateJob", "PretrainJob", "RLJob", "SelectJob"]
