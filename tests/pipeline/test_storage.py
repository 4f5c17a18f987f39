"""Results in object storage: the pipeline up to the choice of a start, with a real client and a local S3 server.

The client and the server need older packages than the lock has, so they lie in a folder of their own, which GLINT_CLUSTER_PACKAGES names:
`pip install --no-deps --target FOLDER --requirement requirements-cluster.lock --requirement tests/pipeline/s3-server.lock`
"""

import os
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.pipeline.checkout import Checkout

SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
COPIES = ".snakemake/storage/s3/my-bucket/glint"
"""Where jobs read and write; what lies in the bucket is a copy."""


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """Start an S3 server; return a function that runs Snakemake in a checkout with one training whose results go there."""
    packages = os.environ.get("GLINT_CLUSTER_PACKAGES")
    if packages is None:
        pytest.skip("GLINT_CLUSTER_PACKAGES names no folder with an S3 client and server (see the head of this file)")
    checkout = Checkout.fresh(tmp_path_factory.mktemp("stored") / "checkout")
    path = checkout.path / "tiny.yaml"
    config = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(config | {"studies": {"main": config["studies"]["main"]}}))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SNAKEMAKE_STORAGE_S3_ACCESS_KEY", "SNAKEMAKE_STORAGE_S3_SECRET_KEY"):
            patch.setenv(name, "any")
        modules = os.environ | {"PYTHONPATH": packages}
        with subprocess.Popen(
            [sys.executable, "-c", SERVE], env=modules, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}"

            def run(profile, *arguments):
                command = checkout.command("--workflow-profile", f"profiles/{profile}", "--storage-s3-endpoint-url", url, *arguments)
                return subprocess.run(command, cwd=checkout.path, env=modules, capture_output=True, text=True, check=False)

            yield checkout, run
            server.kill()


def test_from_corpus_to_selection_in_a_bucket(bucket):
    checkout, run = bucket
    first = run("s3", "--cores", "1", "pretrain")
    assert first.returncode == 0, first.stderr
    assert list((checkout.path / COPIES / "results/tiny/select").glob("*/seed-3/selection.json"))
    shutil.rmtree(checkout.path / ".snakemake/storage")
    again = run("s3", "--dry-run", "pretrain")
    assert "Nothing to be done" in again.stdout + again.stderr
    checkout.edit("glint/selection.py", "def select(", "EDITED = True\n\n\ndef select(")
    edited = run("s3", "--cores", "1", "--until", "select_start", "--", "pretrain")
    assert edited.returncode == 0, edited.stderr
    assert "Selecting where RL starts" in edited.stdout + edited.stderr
    assert "Evaluating" not in edited.stdout + edited.stderr


def test_kubernetes_plans_the_same_jobs(bucket):
    _, run = bucket
    planned = run("kubernetes", "--dry-run", "rl")
    assert planned.returncode == 0, planned.stderr
    assert "train_rl" in planned.stdout + planned.stderr
