"""What this machine takes for a unit of each kind of work: measured in under a minute, and kept for the next plan."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from glint.config.execution import ExecutionRecipe
from glint.device import prepare
from glint.files import read_json, write_json
from glint.speed import decode, pretrain_step
from glint.verify import benchmark
from pipeline.estimate import EXPRESSION_TOKENS, SMALL, Rates

MAX_AGE_SECONDS = 24 * 3600
"""After so long rates are measured anew."""
PRODUCTS = (256,)
"""The rate of products is not asked for here; a small one takes no time."""


class Measured(NamedTuple):
    """The rates of a machine."""

    alone: Rates
    """With one job at work."""
    together: Rates
    """With a job on every core."""
    cores: int
    """Jobs at work when they were together."""
    measured: float
    """When: seconds since 1970."""

    @property
    def crowding(self) -> float:
        """How much longer a training step takes with a job on every core."""
        return self.together.step / self.alone.step

    def at(self, cores: int) -> Rates:
        """Return the rates of `cores` jobs side by side."""
        return self.alone if cores == 1 else self.together


def of_this_machine(cores: int) -> Measured:
    """Return the rates of this machine for up to `cores` jobs side by side: those kept, or where they are old, or none, measured now."""
    path = kept_at()
    found = kept(path)
    if found is not None and time.time() - found.measured < MAX_AGE_SECONDS and found.cores == side_by_side(cores):
        return found
    print("Measuring this machine, alone and with a job on every core: about a minute", flush=True)
    found = Measured(*measure(side_by_side(cores)), side_by_side(cores), time.time())
    write_json(path, found._asdict() | {"alone": found.alone._asdict(), "together": found.together._asdict()})
    return found


def kept(path: Path) -> Measured | None:
    """Return the rates in a file; None where there is none, or one that another version has written."""
    try:
        held = read_json(path)
        return Measured(Rates(**held["alone"]), Rates(**held["together"]), int(held["cores"]), float(held["measured"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def kept_at() -> Path:
    """Return the file of this machine's rates, in the user's cache: they are no part of any run."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "glint" / f"rates-{platform.node() or 'machine'}.json"


def side_by_side(cores: int) -> int:
    """Return how many jobs are measured at once: as many as run, but no more than this machine has cores."""
    return max(2, min(cores, os.cpu_count() or 1))


def measure(jobs: int) -> tuple[Rates, Rates]:
    """Return the rates of one process alone, and the means of `jobs` at once."""
    (alone,) = _at_once(1)
    together = _at_once(jobs)
    means = {name: sum(row[name] for row in together) / jobs for name in alone if name != "precision"}
    return Rates(**alone), Rates(**means, precision=alone["precision"])


def _at_once(count: int) -> list[dict[str, Any]]:
    """Return what `count` processes measure at the same time."""
    command = [sys.executable, "-m", "pipeline.rates"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(count)]
    printed = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise ValueError("this machine's rates could not be measured; the error stands above")
    return [json.loads(text) for text in printed]


def rows() -> dict[str, Any]:
    """Return what this process takes, in the units of `Rates`."""
    start = time.process_time()
    _, dtype = prepare(ExecutionRecipe(device="cpu"))
    with tempfile.TemporaryDirectory() as folder:
        step = pretrain_step("auto", Path(folder), products=PRODUCTS)
        small_step = pretrain_step("fp32", Path(folder), SMALL, sequence=EXPRESSION_TOKENS + 1, products=PRODUCTS)
    return {
        "step": step["cpu_seconds"],
        "small_step": small_step["cpu_seconds"],
        "decode": decode("auto", products=PRODUCTS)["cpu_seconds"],
        "program": benchmark.measure()["cpu_seconds"] / benchmark.GROUP,
        "start": start,
        "precision": "bf16" if dtype == torch.bfloat16 else "fp32",
    }


if __name__ == "__main__":
    print(json.dumps(rows()))
