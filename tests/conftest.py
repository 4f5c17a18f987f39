"""One small model that all tests share: it has learned enough to be right sometimes; and which tests one worker takes."""

import os
from collections.abc import Generator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from glint.train.pretrain import pretrain, step_name
from tests.pipeline.cluster import missing
from tests.train.tiny import STEPS, School, pretrain_job, select, write_corpus

TOGETHER = {
    "tests/pipeline/test_slurm.py": "a Slurm",
    "tests/browser/": "a browser and its pages",
    "tests/train/": "the small model",
    "tests/test_trace.py": "the small model",
    "tests/test_evaluate.py": "the small model",
}
"""What tests share that takes long to make, by how their ids begin: they all go to one worker, so that it is made once."""


class SharingScheduling(LoadScopeScheduling):  # type: ignore[misc]  # untyped
    """Give each worker single tests, and tests that share something together; the largest groups first."""

    def _split_scope(self, nodeid: str) -> str:
        return next((shared for start, shared in TOGETHER.items() if nodeid.startswith(start)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharingScheduling:
    """Choose the scheduler of `pytest -n`; xdist's own groups need ids that this pytest does not let it change."""
    return SharingScheduling(config, log)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Add a worker to those of `pytest -n auto` where there is a Slurm, for which it mostly waits; not to a number from the environment."""
    workers = yield
    return workers if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else workers + (not missing())


@pytest.fixture(scope="session")
def school(tmp_path_factory: pytest.TempPathFactory) -> School:
    """Pretrain the small model, once; tests only read it."""
    folder = tmp_path_factory.mktemp("school")
    examples, tokens = write_corpus(folder)
    pretrain(pretrain_job(checkpoints=(0, STEPS)), tokens, folder / "pretrained", folder / "state")
    return School(examples, tokens, folder / "pretrained", select(folder, step_name(STEPS)))
