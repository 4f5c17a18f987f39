"""The two guards, without Snakemake."""

import base64
import os
import subprocess
import sys

import pytest

from pipeline.guards import DirectoryLock, RefusedError, check_records

HOLD = """
import sys
from pathlib import Path
from pipeline.guards import DirectoryLock
DirectoryLock(Path(sys.argv[1])).hold()
print("held", flush=True)
input()
"""


def test_a_second_run_is_refused_until_the_first_is_killed(tmp_path):
    path = tmp_path / ".snakemake/lock"
    path_of_modules = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLD, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=path_of_modules) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        planned_during = DirectoryLock(path)
        with pytest.raises(RefusedError, match="another run is at work in"):
            planned_during.hold()
        first.kill()
        first.wait()
        DirectoryLock(path).hold()


def test_a_plan_made_before_another_run_ended_is_refused(tmp_path):
    stale = DirectoryLock(tmp_path / "lock")
    done = DirectoryLock(tmp_path / "lock")
    done.hold()
    os.close(done.descriptor)
    with pytest.raises(RefusedError, match="has ended while this one was planned; start it again"):
        stale.hold()


def record(folder, path, text="{}"):
    """Write the record of `path` as Snakemake names it."""
    name = base64.urlsafe_b64encode(path.encode()).decode()
    *folders, last = [name[i : i + 254] for i in range(0, len(name), 254)]
    place = folder.joinpath(*(f"@{part}" for part in folders), last)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


@pytest.mark.parametrize("length", [10, 400])
def test_a_result_without_a_record_is_refused(tmp_path, monkeypatch, length):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".snakemake"
    path = "/".join(["results"] * (length // 10) + ["a.txt"])
    check_records([path], folder)
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).touch()
    with pytest.raises(RefusedError, match="1 results have lost the record"):
        check_records([path], folder)
    record(folder / "metadata", path, text='{"rule": "a"')
    with pytest.raises(RefusedError, match=r"a\.txt"):
        check_records([path], folder)
    record(folder / "metadata", path)
    check_records([path], folder)


def test_an_unfinished_result_is_left_to_snakemake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    record(tmp_path / ".snakemake/incomplete", "a.txt")
    check_records(["a.txt"], tmp_path / ".snakemake")
