"""One finished run of the tiny config, and copies of it."""

import fcntl

import pytest

from tests.pipeline.checkout import ROOT, Checkout


@pytest.fixture(scope="session")
def finished(tmp_path_factory, worker_id):
    """Run the tiny config from corpus to report, once for all workers of the test run; tests only read it.

    What trains and asks models runs the code in its place, so that the loops which Numba compiles are those of the other tests, too;
    pretraining, which needs most of them, goes first and alone, for two jobs at a time would both compile them.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "finished"
    with (folder.with_suffix(".lock")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            running = Checkout.fresh(folder.with_name("running"))
            for arguments in (("1", "pretrain"), ("2", "evaluate", "expressions", "vision", "recall", "architecture")):
                running.snakemake("--snakefile", str(ROOT / "Snakefile"), "--cores", *arguments)
            running.take_compiled_loops()
            running.snakemake("--cores", "2")
            running.path.rename(folder)
    return Checkout(folder)


@pytest.fixture
def copy(finished, tmp_path):
    """Return a copy of the finished checkout that the test may change."""
    return finished.copy(tmp_path / "checkout")
