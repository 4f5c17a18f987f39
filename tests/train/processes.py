"""Trainers as processes of their own, which tests stop at any moment. A server that has imported torch forks them, so a start is quick."""

import multiprocessing
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from glint import files
from glint.train.pretrain import pretrain
from tests.train.tiny import School, pretrain_job, rl_job

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.train.warm"])

PATIENCE = 300.0
"""Seconds within which a run must end, even on a busy machine."""

FAULT = 3
"""Exit status after an error that is a sentence."""


def run_pretraining(school: School, folder: Path, changes: dict[str, Any], save_every: float) -> None:
    """Pretrain with the state beside the results."""
    pretrain(pretrain_job(**changes), school.tokens, folder / "out", folder / "state", save_every)


def run_rl(school: School, folder: Path, changes: dict[str, Any], save_every: float) -> None:
    """Train by RL with the state beside the results."""
    school.train(rl_job(**changes), folder, save_every)


RUNS: dict[str, Callable[[School, Path, dict[str, Any], float], None]] = {"pretraining": run_pretraining, "rl": run_rl}


def die_at_write(number: int) -> None:
    """Have this process kill itself, by SIGKILL, once the file of its write `number` is complete but not yet in its place."""
    flush, count = files._flush, iter(range(1, number + 1))

    def flush_or_die(path: Path) -> None:
        flush(path)
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    files._flush = flush_or_die


def _main(kind: str, school: School, folder: Path, changes: dict[str, Any], save_every: float, die_at: int, largest_file: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sys.stderr = (folder / "stderr").open("w")
    sys.stdout = (folder / "stdout").open("w")
    if die_at:
        die_at_write(die_at)
    if largest_file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    try:
        RUNS[kind](school, folder, changes, save_every)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(FAULT)
    except Exception:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()


def start(
    kind: str, school: School, folder: Path, changes: dict[str, Any], save_every: float, die_at: int = 0, largest_file: int = 0
) -> BaseProcess:
    """Start a run that saves every so often; `die_at` as in `die_at_write`, `largest_file` (bytes) as on a disk that is almost full."""
    process = SERVER.Process(target=_main, args=(kind, school, folder, changes, save_every, die_at, largest_file))
    process.start()
    return process


def finish(process: BaseProcess, folder: Path, status: int = 0) -> str:
    """Wait for the end of a run, which must have the exit status `status`; return what it wrote to stderr."""
    process.join(PATIENCE)
    process.kill()
    text = (folder / "stderr").read_text()
    assert process.exitcode == status, text
    return text
