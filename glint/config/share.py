"""What it takes to write pictures and summaries of the studies."""

from pydantic import Field

from glint.config.base import Strict
from glint.config.tree import Config


class ShareJob(Strict):
    """Tell what the studies of a config found."""

    config: Config
    command: str = Field(min_length=1)
    """What runs the studies again."""
