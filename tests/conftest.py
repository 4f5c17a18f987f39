"""One small model that all tests share: it has learned enough to be right sometimes."""

import pytest

from glint.train.pretrain import pretrain, step_name
from tests.train.tiny import STEPS, School, pretrain_job, select, write_corpus


@pytest.fixture(scope="session")
def school(tmp_path_factory: pytest.TempPathFactory) -> School:
    """Pretrain the small model, once; tests only read it."""
    folder = tmp_path_factory.mktemp("school")
    examples, tokens = write_corpus(folder)
    pretrain(pretrain_job(checkpoints=(0, STEPS)), tokens, folder / "pretrained", folder / "state")
    return School(examples, tokens, folder / "pretrained", select(folder, step_name(STEPS)))
