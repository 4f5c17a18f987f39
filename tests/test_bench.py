"""The benchmark's rows: their shape, and that each command line answers."""

import json
import subprocess
import sys

import pytest
import torch

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


def test_the_median_is_taken_after_the_warm_up() -> None:
    calls: list[int] = []
    row = bench.timed(lambda: calls.append(1), warm_up=2, measured=3)
    assert len(calls) == 5
    assert row.keys() == {"cpu_seconds", "wall_seconds"}


def test_products_have_a_rate_that_a_machine_can_have() -> None:
    assert 1e8 < bench.best_product_rate(torch.float32, sizes=(128,)) < 1e15


@pytest.mark.parametrize(
    "name", ["pretrain_step_fp32", "pretrain_step_bf16", "rl_group", "rl_group_head", "decode", "verify", "dense_step_bf16", "dense_decode"]
)
def test_the_rows_that_the_readme_quotes_exist(name: str) -> None:
    assert name in bench.ROWS
