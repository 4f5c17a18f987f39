"""Kills, second runs and full disks: no truncated file is taken for a result, and the next run goes on to the same bytes."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from glint.config.corpus import CorpusJob, CorpusRecipe
from tests.pipeline.checkout import ROOT, environment

PATIENCE = 60.0
TRAINING = "results/tiny/pretrain"


def wait_until(true, what):
    """Poll until `true()`, at most PATIENCE seconds."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"{what} within {PATIENCE} seconds"
        time.sleep(0.02)


def jobs_in(folder):
    """Return the processes whose command line names a script of the checkout in `folder`."""
    scripts = f"{folder}/workflow/scripts/"
    return [process for process in psutil.process_iter(["cmdline"]) if any(scripts in part for part in process.info["cmdline"] or [])]


@pytest.fixture
def training(copy):
    """Start to pretrain anew in a copy of the finished checkout, and wait until the job is at work."""
    shutil.rmtree(copy.path / TRAINING)
    command = copy.command("--cores", "1", "pretrain")
    with subprocess.Popen(
        command, cwd=copy.path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as run:
        wait_until(lambda: jobs_in(copy.path), "a job starts")
        yield copy, run
        run.kill()


def test_a_second_run_is_refused(training):
    checkout, _ = training
    text = checkout.snakemake("--cores", "1", "figures", "--forcerun", "draw_figures", succeeds=False)
    assert f"another run is at work in {checkout.path}" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_after_a_kill_the_next_run_ends_with_the_same_bytes(training, finished, kill):
    checkout, run = training
    if kill == signal.SIGINT:
        os.killpg(run.pid, kill)  # as Ctrl-C in a terminal: to Snakemake and its jobs
    else:
        run.send_signal(kill)
    run.wait(PATIENCE)
    wait_until(lambda: not jobs_in(checkout.path), "no job outlives its run")
    checkout.snakemake("--cores", "1", "pretrain")
    assert checkout.results() == finished.results()
    assert not list((checkout.path / "results/tiny/.state").glob("*/*"))


def script(name, *arguments, limit=None):
    """Run one script of this project; `limit` is the largest file it may write, as on a disk that is almost full."""
    command = [sys.executable, str(ROOT / "workflow/scripts" / f"{name}.py"), *map(str, arguments)]
    modules = environment() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'workflow'}"}
    restrict = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None
    return subprocess.run(command, env=modules, capture_output=True, text=True, check=False, preexec_fn=restrict)


def test_a_full_disk_is_one_sentence_and_no_file(tmp_path):
    job = CorpusJob(corpus=CorpusRecipe(pretrain_examples=500), seed=1).model_dump_json()
    run = script("draw_corpus", "--job", job, "--out", tmp_path / "examples.parquet", "--recipe", tmp_path / "recipe.json", limit=4096)
    assert run.returncode == 1
    assert run.stderr.startswith("error: ")
    assert "File too large" in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def without_override():
    """Return the command prefix under which file permissions bind root as well; nothing where nobody is root."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("permissions do not bind root, and setpriv, which could make them, is not installed")
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-dac_override,-dac_read_search"]


def test_results_that_cannot_be_written_are_one_sentence_and_the_next_run_goes_on(copy, finished):
    folder = copy.path / "reports/tiny"
    (folder / "report.html").unlink()
    folder.chmod(0o555)
    command = [*without_override(), *copy.command("--cores", "1", "report")]
    run = subprocess.run(command, cwd=copy.path, env=environment(), capture_output=True, text=True, check=False)
    folder.chmod(0o755)
    assert run.returncode != 0
    text = run.stdout + run.stderr
    assert re.search(r"^error: \[Errno 13\] Permission denied: '.*/reports/tiny/", text, re.MULTILINE)
    assert "Traceback" not in text
    copy.snakemake("--cores", "1", "report")
    assert copy.results() == finished.results()


def test_a_truncated_table_is_one_sentence_that_names_it(finished, tmp_path):
    whole = next((finished.path / "results/tiny/corpus").rglob("examples.parquet"))
    half = tmp_path / "examples.parquet"
    half.write_bytes(whole.read_bytes()[:5000])
    run = script("tokenise_corpus", "--examples", half, "--tokens", tmp_path / "tokens", "--card", tmp_path / "card")
    assert run.returncode == 1
    assert f"error: {half} is not a whole Parquet file" in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [half]


@pytest.mark.parametrize(("damage", "lost"), [("cut", "model.safetensors"), ("gone", "config.json")])
def test_a_damaged_checkpoint_is_one_sentence_and_is_made_anew_once_deleted(copy, damage, lost):
    selection = next((copy.path / "results/tiny/select").rglob("selection.json"))
    start = json.loads(selection.read_text())["checkpoint"]
    victim = next((copy.path / TRAINING).glob(f"*/seed-3/checkpoints/{start}/{lost}"))
    if damage == "cut":
        victim.write_bytes(victim.read_bytes()[:-10])
    else:
        victim.unlink()
    text = copy.snakemake("--cores", "1", "--forcerun", "evaluate_before", "--until", "evaluate_before", succeeds=False)
    assert str(victim.parent.relative_to(copy.path)) in text
    assert lost in text
    assert "Traceback" not in text
    shutil.rmtree(victim.parents[1])
    assert copy.planned()["pretrain_longest_seed"] == 1
