"""The pipeline through a real Slurm: two nodes on this machine, two runs side by side, and what goes wrong on a cluster.

One run goes from the corpus to the report while a job is cancelled and Slurm itself is restarted; in the other a trainer meets its time
limit. Both go on by themselves and end with the bytes of a run without Slurm.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import torch
import yaml

from glint.config.load import load
from glint.files import read_json
from pipeline.plan import Plan
from tests.pipeline.checkout import Checkout, environment
from tests.pipeline.cluster import CONTROLLER, cluster, missing

REQUIRED = "GLINT_SLURM_TESTS"
"""Where this variable is set, a machine without Slurm is an error."""
PATIENCE = 900.0
UNENDED = ("RUNNING", "COMPLETING")
STEPS = 60
"""Steps of the training that meets its time limit: enough to be stopped in the middle."""
QUICK = ("--slurm-init-seconds-before-status-checks", "5", "--latency-wait", "5", "--jobs", "8")
"""A site's profile looks for finished jobs less often than a test wants to wait."""


@pytest.fixture(scope="module")
def slurm():
    reason = missing()
    if reason:
        say = pytest.fail if os.environ.get(REQUIRED) else pytest.skip
        say(f"The pipeline is not tried on Slurm: {reason}")
    with tempfile.TemporaryDirectory(prefix="glint-") as parent, cluster(Path(parent) / "slurm") as started:
        yield started


def small(path, change):
    """Return a fresh checkout in the folder `path` whose config is the tiny one after `change`."""
    checkout = Checkout.fresh(path)
    tree = yaml.safe_load((path / "tiny.yaml").read_text())
    tree["studies"] = {
        "main": tree["studies"]["main"] | {"arms": {"published": {}}, "curve": False, "analysis": {"resamples": 100}},
        "expressions": tree["studies"]["expressions"],
    }
    change(tree["recipes"])
    (path / "tiny.yaml").write_text(yaml.safe_dump(tree))
    return checkout


class Started:
    """A run through the profile, and what Slurm says of its jobs."""

    def __init__(self, slurm, checkout, *arguments):
        self.slurm, self.checkout = slurm, checkout
        self.log = checkout.path / "run.log"
        command = checkout.command("--profile", "profiles/slurm", *QUICK, *arguments)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=checkout.path, env=environment() | slurm.environment, stdout=log, stderr=log, start_new_session=True
            )

    def jobs(self, rule=""):
        """Return the jobs of a rule in the order in which they were submitted, each as Slurm's fields by name."""
        shown = self.slurm.ask("scontrol", "--oneliner", "show", "jobs").splitlines()
        fields = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in shown]
        mine = [job for job in fields if job.get("WorkDir") == str(self.checkout.path) and job["Comment"].startswith(f"rule_{rule}")]
        return sorted(mine, key=lambda job: int(job["JobId"]))

    def wait(self, found, what, every=0.5):
        """Poll until `found()` returns something, and return it."""
        end = time.monotonic() + PATIENCE
        while not (answer := found()):
            assert self.process.poll() is None, f"the run ended before: {what}\n{self.text()}"
            assert time.monotonic() < end, f"not within {PATIENCE:.0f} seconds: {what}\n{self.text()}"
            time.sleep(every)
        return answer

    def running(self, rule=""):
        return self.wait(
            lambda: next((job for job in reversed(self.jobs(rule)) if job["JobState"] == "RUNNING"), None), f"a job of {rule} runs"
        )

    def cancel_one(self):
        """Cancel a job at work, and return its id; one that has ended just before it could be cancelled is followed by the next."""
        while True:
            job = self.running()["JobId"]
            with contextlib.suppress(AssertionError):
                self.slurm.ask("scancel", job)
            ended = self.wait(
                lambda job=job: next((one for one in self.jobs() if one["JobId"] == job and one["JobState"] not in UNENDED), None),
                "it ends",
            )
            if ended["JobState"] == "CANCELLED":
                return job

    def finish(self):
        assert self.process.wait(PATIENCE) == 0, self.text()
        return self.text()

    def text(self):
        return self.log.read_text()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


@pytest.fixture(scope="module")
def halted(slurm, tmp_path_factory):
    """A run whose trainer stands still in the middle, until its time limit; and what the same training is without Slurm."""

    def longer(recipes):
        recipes["main"]["corpus"]["pretrain_examples"] = STEPS * recipes["main"]["pretraining"]["batch"]
        recipes["main"]["pretraining"] |= {"steps": STEPS, "first_checkpoint": STEPS // 2, "checkpoint_every": STEPS // 2}

    checkout = small(tmp_path_factory.mktemp("limit") / "checkout", longer)
    plan = Plan(load(checkout.path / "tiny.yaml"))
    (trained,) = plan.stage("pretrain")
    target = f"{plan.folder(trained.id)}/weights.json"
    checkout.snakemake("--cores", "1", target)
    expected = checkout.results()
    shutil.rmtree(checkout.path / "results/tiny/pretrain")
    run = Started(slurm, checkout, "--", target)
    yield run, expected, halt(run)
    run.stop()


def halt(run):
    """Stop the trainer's process once it trains, as a machine that hangs would; return the job with a limit of one minute."""
    state = run.checkout.path / "results/tiny/.state"
    run.wait(lambda: list(state.glob("*/seed-3/state/lock")), "the trainer trains", every=0.02)
    script = str(run.checkout.path / "workflow/scripts/pretrain.py")
    (trainer,) = (process for process in psutil.process_iter(["cmdline"]) if (process.info["cmdline"] or ["", ""])[1:2] == [script])
    run.wait(lambda: catches(trainer.pid, signal.SIGTERM), "the trainer can be told to save", every=0.005)
    trainer.suspend()
    job = run.running("pretrain")
    run.slurm.ask("scontrol", "update", f"JobId={job['JobId']}", "TimeLimit=1")
    return job


def catches(pid, number):
    """Return whether a process has a handler of its own for a signal."""
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught, 16) >> (number - 1) & 1)


def state_at_the_limit(run):
    """Wait until the trainer meets its limit; return the metrics of the steps that it has saved."""
    state = next((run.checkout.path / "results/tiny/.state").glob("*/seed-3/state"))
    index = run.wait(lambda: (state / "state.json").exists() and read_json(state / "state.json"), "the trainer saves its state")
    saved: list[dict[str, float]] = torch.load(state / index["file"], weights_only=True)["metrics"]
    return saved


@pytest.fixture(scope="module")
def whole(slurm, halted, tmp_path_factory):
    """A run from the corpus to the report, while the other stands still, with its troubles."""
    checkout = small(tmp_path_factory.mktemp("whole") / "checkout", lambda recipes: None)
    gpu = ("--set-resources", "train_expressions:gpu=1", "train_expressions:slurm_partition=gpu")
    run = Started(slurm, checkout, *gpu, "--", "reports/tiny/report.html")
    saved = state_at_the_limit(halted[0])
    cancelled = run.cancel_one()
    run.running()
    for name in (CONTROLLER, "cpu"):
        slurm.end(name)
        slurm.begin(name)
    yield run, cancelled, saved
    run.stop()


def test_a_trainer_at_its_time_limit_goes_on_from_its_state_to_the_same_bytes(halted, whole):
    run, expected, first = halted
    _, _, saved = whole
    text = run.finish()
    assert "TIMEOUT" in text
    tries = run.jobs("pretrain")
    assert [job["JobState"] for job in tries] == ["TIMEOUT", "COMPLETED"]
    assert minutes(tries[1]["TimeLimit"]) == 2 * minutes(first["TimeLimit"])
    assert memory(tries[1]) == 2 * memory(first)
    (metrics,) = (run.checkout.path / "results/tiny/pretrain").glob("*/seed-3/metrics.jsonl")
    assert 0 < len(saved) < STEPS
    # with the seconds that these steps took in the first try, which no other run has
    assert [json.loads(line) for line in metrics.read_text().splitlines()][: len(saved)] == saved
    assert run.checkout.results() == expected


def minutes(limit):
    """Return the minutes of a time limit as Slurm writes it (hours:minutes:seconds)."""
    hours, rest, _ = limit.split(":")
    return int(hours) * 60 + int(rest)


def memory(job):
    (found,) = re.findall(r"mem=([\d.]+)M", job["TRES"])
    return float(found)


def test_a_cancelled_job_and_a_restart_of_slurm_lose_nothing(whole, finished):
    run, cancelled, _ = whole
    run.finish()
    states = {job["JobId"]: job["JobState"] for job in run.jobs()}
    assert states.pop(cancelled) == "CANCELLED"
    assert set(states.values()) == {"COMPLETED"}
    assert (run.checkout.path / "reports/tiny/report.html").stat().st_size > 10_000
    local, through_slurm = finished.results(), run.checkout.results()
    shared = [name for name in through_slurm if re.match("results/tiny/(corpus|expressions|rl)/", name)]
    assert {name.split("/")[2] for name in shared} == {"corpus", "expressions", "rl"}
    assert {name: through_slurm[name] for name in shared} == {name: local[name] for name in shared}


def test_after_it_nothing_is_left_to_do_with_or_without_slurm(slurm, whole):
    run, _, _ = whole
    run.finish()
    assert run.checkout.planned("reports/tiny/report.html") == {}


def test_jobs_that_want_a_gpu_get_one_each_in_turn_and_others_see_none(slurm, whole):
    run, _, _ = whole
    run.finish()
    on_gpu = {job["JobId"]: job for job in run.jobs("train_expressions")}
    seen = {tuple(line.split(" ")) for line in (slurm.folder / "devices").read_text().splitlines()}
    assert len(on_gpu) >= 2
    assert {device for job, device in seen if job in on_gpu} == {"0"}
    # Slurm says nothing to the first step of a job that has asked for none, and the pipeline shows an empty list to the second
    assert {device for job, device in seen if job not in on_gpu} == {"none", ""}
    times = sorted((job["StartTime"], job["EndTime"]) for job in on_gpu.values())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(times))
