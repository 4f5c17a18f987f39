"""One finished run of the tiny config, and copies of it."""

import pytest

from tests.pipeline.checkout import Checkout


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Run the tiny config from corpus to report, once; tests only read it."""
    checkout = Checkout.fresh(tmp_path_factory.mktemp("finished") / "checkout")
    checkout.snakemake("--cores", "2")
    return checkout


@pytest.fixture
def copy(finished, tmp_path):
    """Return a copy of the finished checkout that the test may change."""
    return finished.copy(tmp_path / "checkout")
