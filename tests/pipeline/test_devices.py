"""Slots of CUDA devices, with fakes: one job at a time in a slot, whoever starts it and however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import devices
from tests.pipeline.checkout import ROOT, Checkout, environment

A, B = "GPU-aaaa", "GPU-bbbb"
LISTED = f"GPU 0: Some GPU (UUID: {A})\n  MIG 1g.10gb Device 0: (UUID: MIG-cccc)\nGPU 1: Some GPU (UUID: {B})\n"
BUSY = """
rule all:
    input: expand("done-{n}", n=range(6))

rule job:
    output: "done-{n}"
    resources: gpu=1
    shell: "exec {config[launcher]} -- bash {config[work]} {output}"
"""
WORK = """
set -o noclobber  # creating a file that is there fails: another job is on this device
echo $$ > busy-$CUDA_VISIBLE_DEVICES
sleep 0.3
rm busy-$CUDA_VISIBLE_DEVICES
echo $CUDA_VISIBLE_DEVICES > $1
"""


@pytest.fixture(autouse=True)
def _asked_anew():
    """Let every test ask nvidia-smi itself."""
    devices.listed.cache_clear()
    yield
    devices.listed.cache_clear()


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Put a fake nvidia-smi with two devices into the path, and forget what the user has chosen; return the environment of jobs."""
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nprintf '%s' '{LISTED}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.delenv(devices.VISIBLE, raising=False)


def launcher(slots, each=1):
    return [sys.executable, "-m", "pipeline.devices", "--slots", str(slots), "--each", str(each)]


def modules(**more):
    return environment() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'workflow'}"} | more


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ("0", ["0"]),
        ("2,0", ["2", "0"]),
        (f" {A} , {B}", [A, B]),
        ("MIG-cccc/1/0", ["MIG-cccc/1/0"]),
        ("", []),
        ("-1", []),
        ("1,-1,2", ["1"]),
        ("NoDevFiles", []),
    ],
)
def test_the_users_list_is_read_as_cuda_reads_it(visible, found):
    assert devices.named(visible) == found


@pytest.mark.usefixtures("nvidia_smi")
def test_the_users_list_goes_before_what_the_machine_has(monkeypatch):
    assert devices.present() == [A, B]
    assert devices.expected()
    monkeypatch.setenv(devices.VISIBLE, "1")
    assert devices.present() == ["1"]
    assert devices.expected()
    monkeypatch.setenv(devices.VISIBLE, "")
    assert devices.present() == []
    assert not devices.expected()


@pytest.mark.parametrize("tool", ["echo 'NVIDIA-SMI has failed'; exit 9", "exit 0"])
def test_where_nvidias_tools_find_no_device_none_is_expected(monkeypatch, tmp_path, tool):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{tool}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv(devices.VISIBLE, raising=False)
    assert not devices.expected()
    assert devices.present() is None


def test_without_nvidias_tools_no_device_is_expected_and_none_is_known(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(devices.VISIBLE, raising=False)
    assert not devices.expected()
    assert devices.present() is None


def test_a_device_gets_its_second_job_when_every_device_has_its_first(tmp_path):
    assert [devices.take(tmp_path, ["MIG-c/1", B], 2) for _ in range(5)] == ["MIG-c/1", B, "MIG-c/1", B, None]


def test_a_killed_job_frees_its_slot(tmp_path):
    command = [*launcher(tmp_path), "--", "sh", "-c", "echo $$; exec sleep 60"]
    with subprocess.Popen(command, env=modules(**{devices.VISIBLE: "7"}), stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert int(job.stdout.readline()) == job.pid  # the launcher has become the job
        (folder,) = tmp_path.iterdir()
        assert devices.take(folder, ["7"], 1) is None
        job.send_signal(signal.SIGKILL)
        job.wait()
        assert devices.take(folder, ["7"], 1) == "7"


def test_a_waiting_job_says_so_and_ends_with_its_pipeline(tmp_path):
    held = tmp_path / os.uname().nodename
    assert devices.take(held, ["7"], 1) == "7"
    line = f"{' '.join(launcher(tmp_path))} -- touch {tmp_path}/ran & sleep 60"
    with subprocess.Popen(["bash", "-c", line], env=modules(**{devices.VISIBLE: "7"}), stderr=subprocess.PIPE, text=True) as pipeline:
        assert pipeline.stderr is not None
        assert pipeline.stderr.readline() == "waiting for one of 1 slots on 1 CUDA devices\n"
        pipeline.kill()
        assert pipeline.stderr.readline() == "error: the pipeline that started this job has ended\n"
    assert not Path(tmp_path / "ran").exists()


@pytest.mark.usefixtures("nvidia_smi")
def test_no_two_jobs_of_two_runs_meet_on_a_device(tmp_path):
    (tmp_path / "Snakefile").write_text(BUSY)
    (tmp_path / "work.sh").write_text(WORK)
    config = [f"launcher={' '.join(launcher(tmp_path / 'slots'))}", f"work={tmp_path / 'work.sh'}"]
    command = [sys.executable, "-m", "snakemake", "--nolock", "--cores", "6", "--resources", "gpu=6", "--config", *config]
    halves = [[f"done-{n}" for n in numbers] for numbers in ((0, 1, 2), (3, 4, 5))]
    runs = [subprocess.Popen([*command, "--", *half], cwd=tmp_path, env=modules(), stderr=subprocess.PIPE, text=True) for half in halves]
    said = [run.communicate()[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    assert {(tmp_path / f"done-{n}").read_text().strip() for n in range(6)} <= {A, B}


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """A checkout without results whose jobs take CUDA where they can."""
    checkout = Checkout.fresh(tmp_path_factory.mktemp("code") / "checkout")
    checkout.edit("tiny.yaml", "execution: {device: cpu, precision: fp32}", "execution: {precision: fp32}")
    return checkout


@pytest.mark.usefixtures("nvidia_smi")
@pytest.mark.parametrize(("visible", "slots"), [(None, 1), ("0,1", 1), ("", 0)])
def test_jobs_wait_for_a_slot_where_cuda_will_be_used(code, monkeypatch, visible, slots):
    if visible is not None:
        monkeypatch.setenv(devices.VISIBLE, visible)
    text = code.snakemake("--dry-run", "--printshellcmds", "pretrain", "--config", "jobs_per_gpu=3")
    lines = [line.strip() for line in text.splitlines() if "scripts/pretrain.py" in line]
    assert lines
    for line in lines:
        assert f"set --; [ {slots} = 0 ] || set -- " in line
        assert '--each 3 --; exec "$@"' in line


def test_no_library_of_nvidia_takes_tf32_in_a_job(code):
    path = code.path / "Snakefile"
    path.write_text(path.read_text() + '\n\nrule seen:\n    output: "seen"\n    shell: "echo $NVIDIA_TF32_OVERRIDE > {output}"\n')
    code.snakemake("--cores", "1", "seen")
    assert (code.path / "seen").read_text() == "0\n"


def test_a_job_without_a_device_takes_no_slot(finished):
    assert (finished.path / "results/tiny/pretrain").exists()
    assert not (finished.path / ".snakemake/glint/devices").exists()
