"""How far a run is, as its logs say it."""

import os
import re
import runpy
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from glint.config.load import load
from pipeline.plan import Plan
from pipeline.progress import NAMED, STAMP, Jobs, newest_run, text, working
from tests.pipeline.checkout import ROOT

BEGAN = datetime(2026, 11, 30, 10, 15, 7)
LOG = """Job stats:
job          count
---------  -------
train_rl         3
total            4

Select jobs to execute...
[Mon Nov 30 10:15:13 2026]
Job 12: RL of arm published of main, seed 42
Finished jobid: 12 (Rule: train_rl)
1 of 4 steps (25%) done
"""


@pytest.fixture
def directory(tmp_path):
    """A directory in which a run is at work: one trainer done, one at work, one silent since an earlier run."""
    logs = tmp_path / ".snakemake/log"
    logs.mkdir(parents=True)
    (logs / f"{BEGAN.strftime(STAMP)}.767636.snakemake.log").write_text(LOG)
    for seed, said, age in (
        (42, "group 12/12  exact 3  0 s left\n", 9),
        (43, "group 5/12  exact 2  7 s left\n", 8),
        (44, "group 1/12\n", -60),
    ):
        log = tmp_path / f"results/mine/logs/rl/abc/seed-{seed}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"group 1/12  exact 0  9 s left\n{said}")
        os.utime(log, (BEGAN.timestamp() + age,) * 2)
    done = tmp_path / "results/mine/rl/abc/seed-42"
    done.mkdir(parents=True)
    (done / "recipe.json").write_text("{}")
    return tmp_path


def test_jobs_are_counted_by_the_newest_log(directory):
    logs = directory / ".snakemake/log"
    earlier = "total 9\nSelect jobs to execute...\n9 of 9 steps (100%) done\nComplete log(s): x\n"
    (logs / "2026-11-29T000000.1.snakemake.log").write_text(earlier)
    (logs / "2026-11-30T110000.1.snakemake.log").write_text("Building DAG of jobs...\ntotal 5\n")  # a dry run begins no job
    jobs = Jobs.of(directory / ".snakemake/log")
    assert jobs == Jobs(done=1, total=4, began=BEGAN.timestamp(), ended=False, run=None)


def test_a_trainer_at_work_is_shown_with_its_last_line(directory):
    assert working(directory / "results/mine", BEGAN.timestamp()) == [
        ("rl/abc/seed-43", BEGAN.timestamp() + 8, "group 5/12  exact 2  7 s left")
    ]
    shown, ended = text(directory, "mine")
    assert not ended
    head, line = shown.splitlines()
    assert head == "run mine: 1 of 4 jobs done (25 %)"
    assert line.startswith("  rl/abc/seed-43: group 5/12  exact 2  7 s left  (")


@pytest.mark.parametrize("last", ["Complete log(s): x\n", "Exiting because a job execution failed. Look below for error messages\n"])
def test_a_run_that_has_ended_shows_no_trainer(directory, last):
    (log,) = (directory / ".snakemake/log").iterdir()
    log.write_text(LOG + last)
    assert text(directory, "mine") == ("run mine: 1 of 4 jobs done (25 %), ended", True)


def test_a_run_that_is_not_there_is_not_counted(directory):
    (directory / "results/other/logs").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"^there is no run nosuch in results/; there are: mine, other$"):
        text(directory, "nosuch")


@pytest.mark.parametrize("said", ["", "Job 8: Analysing the studies of mine\n"])
def test_the_counts_of_another_run_stand_under_its_own_name(directory, said):
    (directory / "results/other/logs").mkdir(parents=True)
    os.utime(directory / "results/other/logs", (BEGAN.timestamp() - 60,) * 2)
    (log,) = (directory / ".snakemake/log").iterdir()
    log.write_text(LOG + said)
    assert text(directory, "other") == ("run other: not at work; the newest log is that of run mine: 1 of 4 jobs done (25 %)", True)
    assert text(directory, "mine")[0].startswith("run mine: 1 of 4 jobs done (25 %)\n")


def test_the_name_in_a_log_counts_more_than_what_changed_last(directory):
    (directory / "results/other/logs").mkdir(parents=True)
    (log,) = (directory / ".snakemake/log").iterdir()
    log.write_text(LOG + "Job 8: Tracing the run of arm published of main, seed 42\nJob 0: Run other is complete\n")
    assert text(directory, "other")[0] == "run other: 1 of 4 jobs done (25 %)"


def test_every_message_with_a_run_names_it():
    rules = [ROOT / "Snakefile", *(ROOT / "rules").glob("*.smk")]
    said = [line for path in rules for line in re.findall(r'^ +"(.*\{RUN\}.*)"$', path.read_text(), re.MULTILINE)]
    assert len(said) > 10
    for message in said:
        found = re.search(NAMED, f"Job 1: {message.format(RUN='my-run_2')}")
        assert found, message
        assert "my-run_2" in found.groups()


def test_without_a_run_that_is_said(tmp_path):
    assert text(tmp_path, "mine") == (f"run mine: no run has begun in {tmp_path}", True)
    assert newest_run(tmp_path / "results") is None


def test_the_command_takes_the_newest_run(directory):
    script = ROOT / "workflow/scripts/watch.py"
    path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, script, "--once"], cwd=directory, env=path, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("run mine: 1 of 4 jobs done (25 %)\n  rl/abc/seed-43: group 5/12")


def test_the_command_names_the_runs_there_are(directory):
    script = ROOT / "workflow/scripts/watch.py"
    path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, script, "nosuch"], cwd=directory, env=path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (1, "", "error: there is no run nosuch in results/; there are: mine\n")


def test_every_training_has_one_folder_of_tensorboard_logs_under_a_name_that_people_know():
    plan = Plan(load(Path(ROOT / "tests/pipeline/tiny.yaml")))
    found = runpy.run_path(str(ROOT / "workflow/scripts/write_tensorboard.py"))["folders"](plan)
    assert len(found) == len(set(found.values()))
    trained = [job for stage in ("pretrain", "rl", "expressions", "vision", "recall") for job in plan.stage(stage)]
    assert set(found.values()) == {plan.folder(job.id) for job in trained}
    assert {"pretrain/main.published/seed-3", "rl/main.shuffled/seed-3", "vision/vision.direct_patch/seed-3"} <= set(found)


def test_a_log_cannot_command_the_terminal(directory):
    log = directory / "results/mine/logs/rl/abc/seed-43.log"
    log.write_bytes(b"group 5\x1b]0;title\x07 \xc2\x9b2J\n")
    os.utime(log, (BEGAN.timestamp() + 8,) * 2)
    shown, _ = text(directory, "mine")
    assert all(one.isprintable() or one == "\n" for one in shown)
    assert "group 5\\x1b]0;title\\x07" in shown


@pytest.mark.parametrize("every", ["-1", "0", "nan"])
def test_no_time_to_wait_is_one_sentence(directory, every):
    path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, ROOT / "workflow/scripts/watch.py", "--every", every]
    run = subprocess.run(command, cwd=directory, env=path, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
