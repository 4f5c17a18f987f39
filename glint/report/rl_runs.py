"""The runs of all studies of kind rl, and where their results lie, for pages that show single completions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glint.config.tree import Config, resolve
from glint.manifest import Manifest, Role

ROLES: tuple[Role, ...] = (
    "before",
    "after",
    "rollouts",
    "examples",
    "pretrain_dev",
    "rl_dev",
    "trace_random",
    "trace_next_bytes",
)


@dataclass(frozen=True)
class Run:
    """One seed of one arm of one study."""

    study: str
    arm: str
    seed: int
    stop: str
    """The study's headline stop rule, under which completions are shown."""
    files: Mapping[Role, Path]
    """Result files by role; `rl_dev` is absent where the study asks for no curve."""

    @property
    def name(self) -> dict[str, Any]:
        """Study, arm and seed."""
        return {"study": self.study, "arm": self.arm, "seed": self.seed}


def finished(config: Config, manifest: Manifest) -> Iterator[Run]:
    """Yield the runs in the order of the report, without those that have no completions after RL."""
    for study in config.rl_studies():
        for arm in config.studies[study].in_order():
            stop = resolve(config, study, arm).evaluation.stops[0]
            for seed in sorted(config.studies[study].seeds):
                files = {role: path for role in ROLES if (path := manifest.path(study, arm, seed, role)) is not None}
                if "after" in files:
                    yield Run(study, arm, seed, stop, files)
