"""The benchmark's rows: their shape, and that each command line answers."""

import json
import subprocess
import sys

import pytest

from glint import bench


def test_a_row_is_one_json_object_a_line() -> None:
    run = subprocess.run([sys.executable, "-m", "glint.bench", "--only", "verify", "--json"], capture_output=True, text=True, check=True)
    (line,) = run.stdout.splitlines()
    row = json.loads(line)
    assert row["name"] == "verify"
    assert {"cpu_seconds", "wall_seconds", "efficiency", "peak_mib"} <= row.keys()
    assert row["candidates_per_second"] > 0


def test_an_unknown_row_is_refused_with_the_known_ones() -> None:
    run = subprocess.run([sys.executable, "-m", "glint.bench", "--only", "speed"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert all(name in run.stderr for name in bench.ROWS)


@pytest.mark.parametrize(
    "name",
    [
        "pretrain_step_fp32",
        "pretrain_step_bf16",
        "rl_group",
        "rl_group_head",
        "decode",
        "verify",
        "dense_step_bf16",
        "dense_decode",
        "faithful_step_bf16",
        "faithful_decode",
    ],
)
def test_the_rows_that_the_readme_quotes_exist(name: str) -> None:
    assert name in bench.ROWS
