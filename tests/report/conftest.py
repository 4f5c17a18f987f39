"""One analysed synthetic run for the tests that only read it."""

import pytest

from glint.analysis import analyse
from tests.report import synthetic


@pytest.fixture(scope="session")
def analysed(tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    analyse(synthetic.config(), synthetic.write(root / "results", missing=[("shuffled", 46)]), root / "report")
    return root
