"""Runs that are killed, stopped or starved at any moment go on from their state and end with the bits of an uninterrupted run."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from glint.config.rl import KLRecipe, ReplayRecipe
from glint.files import read_json
from glint.train.state import StateStore
from tests.train.processes import FAULT, finish, start
from tests.train.tiny import School, metrics, weights

ALWAYS, NEVER = 1e-9, 1e9
"""Seconds between saves."""
CHANGES: dict[str, dict[str, Any]] = {
    "pretraining": {"steps": 12, "checkpoints": (0, 3, 6, 12), "weight_decay": 0.1},
    "rl": {
        "groups": 6,
        "checkpoint_every": 3,
        "families": ("increment",),
        "group_size": 5,
        "kl": KLRecipe(weight=0.05),
        "replay": ReplayRecipe(weight=0.2, rows=2),
    },
}
KINDS = tuple(CHANGES)


@dataclass(frozen=True)
class Reference:
    """What an uninterrupted run ends with, and the seconds it took."""

    out: Path
    seconds: float

    def check(self, out: Path) -> None:
        """Demand the same bits of another run: weights, rollouts, and metrics but for their clock times."""
        assert weights(out) == weights(self.out)
        assert metrics(out) == metrics(self.out)
        tables = [[path.read_bytes() for path in sorted(folder.glob("*.parquet"))] for folder in (out, self.out)]
        assert tables[0] == tables[1]
        visible = [{path.relative_to(folder) for path in folder.rglob("[!.]*")} for folder in (out, self.out)]
        assert visible[0] == visible[1]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def reference_of(school: School, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    @cache
    def run(kind: str) -> Reference:
        folder = tmp_path_factory.mktemp(kind)
        finish(start(kind, school, folder / "first", CHANGES[kind], NEVER), folder / "first")
        began = time.monotonic()
        finish(start(kind, school, folder / "second", CHANGES[kind], ALWAYS), folder / "second")
        reference = Reference(folder / "first/out", time.monotonic() - began)
        reference.check(folder / "second/out")
        return reference

    return run


@pytest.fixture
def reference(kind: str, reference_of: Callable[[str], Reference]) -> Reference:
    return reference_of(kind)


def saved_positions(folder: Path) -> list[int]:
    return [int(path.stem.partition("-")[2]) for path in (folder / "state").glob("state-*.pt")]


def wait_for(process: BaseProcess, folder: Path, position: int) -> None:
    """Wait until the run has saved a state at `position` or later."""
    while max(saved_positions(folder), default=0) < position:
        assert process.is_alive(), "the run ended too early"
        time.sleep(0.005)


def test_killed_at_random_moments(kind: str, reference: Reference, school: School, tmp_path: Path) -> None:
    moments = random.Random(f"{kind} 6")
    reached = [0]
    for _ in range(5):
        process = start(kind, school, tmp_path, CHANGES[kind], ALWAYS)
        process.join(moments.uniform(0.15, 0.45) * reference.seconds)
        process.kill()
        process.join()
        reached.append(max(saved_positions(tmp_path), default=0))
    assert reached == sorted(reached)
    last = start(kind, school, tmp_path, CHANGES[kind], ALWAYS)
    wait_for(last, tmp_path, 1)  # on a slow start every moment may come before the first save
    last.kill()
    last.join()
    finish(start(kind, school, tmp_path, CHANGES[kind], ALWAYS), tmp_path)
    reference.check(tmp_path / "out")


def test_killed_while_a_file_is_written(kind: str, reference: Reference, school: School, tmp_path: Path) -> None:
    """The first writes of a run are checkpoint and config, state and index: each is on disk, but not yet in its place."""
    for write in range(1, 7):
        finish(start(kind, school, tmp_path, CHANGES[kind], ALWAYS, die_at=write), tmp_path, -signal.SIGKILL)
    finish(start(kind, school, tmp_path, CHANGES[kind], ALWAYS), tmp_path)
    reference.check(tmp_path / "out")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_by_a_signal(kind: str, reference: Reference, school: School, tmp_path: Path, number: signal.Signals) -> None:
    """A run that never saves by the clock saves when it is asked to stop."""
    process = start(kind, school, tmp_path, CHANGES[kind], NEVER)
    while not list((tmp_path / "out").glob("*/config.json")):
        assert process.is_alive(), "the run ended too early"
        time.sleep(0.005)
    assert process.ident is not None
    os.kill(process.ident, number)
    text = finish(process, tmp_path, 128 + number)
    (position,) = saved_positions(tmp_path)
    assert text == f"stopped by signal {number.value}; the state at {position} is saved, run again to go on\n"
    assert not (tmp_path / "out/metrics.jsonl").exists()
    finish(start(kind, school, tmp_path, CHANGES[kind], NEVER), tmp_path)
    reference.check(tmp_path / "out")


@pytest.fixture(scope="module")
def stopped_run_of(school: School, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def run(kind: str) -> Path:
        folder = tmp_path_factory.mktemp(f"{kind}-stopped") / "run"
        process = start(kind, school, folder, CHANGES[kind], ALWAYS)
        wait_for(process, folder, 2)
        process.kill()
        process.join()
        return folder

    return run


@pytest.mark.parametrize(
    ("kind", "victim", "damage"),
    [
        ("pretraining", "state.json", "cut"),
        ("pretraining", "state.json", "scrambled"),
        ("pretraining", "weights", "gone"),
        ("pretraining", "weights", "scrambled"),
        ("rl", "weights", "cut"),
    ],
    indirect=["kind"],
)
def test_a_damaged_state_starts_anew(
    kind: str,
    reference: Reference,
    school: School,
    stopped_run_of: Callable[[str], Path],
    tmp_path: Path,
    victim: str,
    damage: str,
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(stopped_run_of(kind), folder)
    index = read_json(folder / "state/state.json")
    path = folder / "state" / (index["file"] if victim == "weights" else victim)
    content = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else content[:20] + b"\xff" * 20 + content[40:])
    text = finish(start(kind, school, folder, CHANGES[kind], ALWAYS), folder)
    assert text == f"the saved state in {folder / 'state'} is damaged; starting anew\n"
    reference.check(folder / "out")


@pytest.mark.parametrize(("kind", "limit"), [("pretraining", 30_000), ("pretraining", 600_000), ("rl", 200_000)], indirect=["kind"])
def test_a_full_disk_is_one_sentence(kind: str, reference: Reference, school: School, tmp_path: Path, limit: int) -> None:
    """Weights take 0.4 MB and a state 1.2 MB in pretraining, 0.1 and 0.4 MB in RL: one or the other does not fit."""
    text = finish(start(kind, school, tmp_path, CHANGES[kind], ALWAYS, largest_file=limit), tmp_path, FAULT)
    assert text.startswith("error: ")
    assert str(tmp_path) in text
    assert len(text.splitlines()) == 1
    found = weights(tmp_path / "out")
    assert found == {name: content for name, content in weights(reference.out).items() if name in found}
    assert not list(tmp_path.rglob(".*"))
    finish(start(kind, school, tmp_path, CHANGES[kind], ALWAYS), tmp_path)
    reference.check(tmp_path / "out")


def test_a_second_process_is_refused(kind: str, school: School, tmp_path: Path) -> None:
    with StateStore(tmp_path / "state", 60):
        text = finish(start(kind, school, tmp_path, CHANGES[kind], ALWAYS), tmp_path, FAULT)
    assert text == f"error: {tmp_path / 'state'} is in use by another process; wait for it, or stop it, and run again\n"
    assert not (tmp_path / "out").exists()
    assert os.listdir(tmp_path / "state") == ["lock"]
