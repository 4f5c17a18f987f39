"""Progress lines for the log, and what a receipt says."""

import platform
import time
from importlib.metadata import version
from typing import Any

import torch

from glint.device import describe

PACKAGES = ("torch", "numpy", "safetensors", "pyarrow")


class Progress:
    """Prints a line every few seconds: position, details, and the time left at the pace so far."""

    def __init__(self, unit: str, total: int, start: int, every_seconds: float = 5.0) -> None:
        self.unit, self.total, self.start, self.every_seconds = unit, total, start, every_seconds
        self.began = self.printed = time.monotonic()

    def report(self, position: int, details: str) -> None:
        """Print a line if the last one is old enough or the work is done."""
        now = time.monotonic()
        if now - self.printed < self.every_seconds and position < self.total:
            return
        left = (now - self.began) / max(position - self.start, 1) * (self.total - position)
        print(f"{self.unit} {position}/{self.total}  {details}  {left:.0f} s left", flush=True)
        self.printed = now


def receipt(device: torch.device, dtype: torch.dtype, seconds: float, **facts: Any) -> dict[str, Any]:
    """Return what a job says of itself: device, precision, threads, versions, seconds over all resumptions, and `facts`."""
    hardware = describe(device, dtype)
    versions = {"python": platform.python_version(), **{package: version(package) for package in PACKAGES}}
    return {
        "device": hardware["device"],
        "precision": hardware["dtype"],
        "threads": hardware["threads"],
        "versions": versions,
        "seconds": round(seconds, 3),
        **facts,
    }
