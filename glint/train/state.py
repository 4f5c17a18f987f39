"""Resumable state: everything a trainer needs to go on, saved on a timer and when it is asked to stop.

All random draws of the trainers come from generators named by seed and position, so position, weights and optimiser are the whole state.
"""

import fcntl
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch

from glint.files import read_json, replacing, sha256, write_json

SAVE_EVERY_SECONDS = 60.0
"""How much work a kill can cost. No part of a recipe: a result does not depend on it."""


class Interrupted(SystemExit):
    """The process was asked to stop; its state is saved."""


class StateStore:
    """The state folder of one job: locked against a second process, saved atomically, checked by hash when read. A context manager."""

    def __init__(self, folder: Path, every_seconds: float) -> None:
        self.folder = folder
        self.every_seconds = every_seconds
        self._saved_at = time.monotonic()
        self._signal: int | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"{self.folder} is in use by another process; wait for it, or stop it, and run again") from error
        self._previous = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._lock.close()

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._signal = number

    def load(self) -> dict[str, Any] | None:
        """Return the last saved state, or None at a fresh start. A damaged state is reported and dropped: the job starts anew."""
        index = self.folder / "state.json"
        if not index.exists():
            return None
        try:
            named = read_json(index)
            path = self.folder / named["file"]
            if sha256(path) == named["sha256"]:
                state: dict[str, Any] = torch.load(path, weights_only=True)
                return state
        except (ValueError, OSError, KeyError):
            pass
        print(f"the saved state in {self.folder} is damaged; starting anew", file=sys.stderr, flush=True)
        return None

    def save(self, state: dict[str, Any], position: int) -> None:
        """Write `state` under a name of its own, point to it, and drop the older ones."""
        path = self.folder / f"state-{position:06d}.pt"
        with replacing(path) as temporary:
            try:
                torch.save(state, temporary)
            except RuntimeError as error:  # what torch makes of a failed write
                raise OSError(f"{path} could not be written; is the disk full?") from error
        write_json(self.folder / "state.json", {"file": path.name, "sha256": sha256(path), "position": position})
        for older in self.folder.glob("state-*.pt"):
            if older != path:
                older.unlink()
        self._saved_at = time.monotonic()

    def offer(self, state: Callable[[], dict[str, Any]], position: int) -> None:
        """Save if the timer is due; if a signal has come, save and raise Interrupted. Called after every complete step."""
        if self._signal is None and time.monotonic() - self._saved_at < self.every_seconds:
            return
        self.save(state(), position)
        if self._signal is not None:
            print(f"stopped by signal {self._signal}; the state at {position} is saved, run again to go on", file=sys.stderr, flush=True)
            raise Interrupted(128 + self._signal)
