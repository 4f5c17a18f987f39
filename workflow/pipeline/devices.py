"""Which CUDA device a job gets: each job takes one slot, and a device has as many slots as the config allows jobs on it.

`python -m pipeline.devices --slots FOLDER --each JOBS -- COMMAND` waits for a free slot, lets COMMAND see the device of that slot alone,
and becomes COMMAND (`exec`: the process stays the same). A slot is a file with a lock that the job inherits; the kernel frees it when
the last process that holds it ends, however it ends.
"""

import argparse
import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from urllib.parse import quote

VISIBLE = "CUDA_VISIBLE_DEVICES"
POLL = 0.5
"""Seconds between two looks for a free slot."""


def named(visible: str) -> list[str]:
    """Return the devices in a value of CUDA_VISIBLE_DEVICES, indices or UUIDs; as for CUDA, the list ends at the first that is neither."""
    entries = (entry.strip() for entry in visible.split(","))
    return list(takewhile(re.compile(r"\d+|GPU-.+|MIG-.+").fullmatch, entries))


@cache
def listed() -> tuple[str, ...]:
    """Return the UUIDs of all devices that nvidia-smi lists; none where it is missing, fails, or finds no device."""
    if shutil.which("nvidia-smi") is None:
        return ()
    shown = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False)
    return tuple(re.findall(r"^GPU .*\(UUID: (GPU-[^)]+)\)", shown.stdout, re.MULTILINE))


def expected() -> bool:
    """Return whether a job that takes CUDA where it can will find a device: there is one, and no empty list hides it."""
    return bool(listed()) and (VISIBLE not in os.environ or bool(named(os.environ[VISIBLE])))


def present() -> list[str] | None:
    """Return the devices that this process may use: those named by the user, else all that nvidia-smi lists; None where nobody knows."""
    if VISIBLE in os.environ:
        return named(os.environ[VISIBLE])
    return list(listed()) or None


def take(folder: Path, devices: Sequence[str], each: int) -> str | None:
    """Lock a free slot of `devices`, of which each has `each`, for this process and its heirs; return its device, or None if none is free.

    A device gets its second job when every device has its first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for turn in range(each):
        for device in devices:
            slot = os.open(folder / f"{quote(device, safe='') or 'unnamed'}.{turn}.lock", os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(slot)
                continue
            os.set_inheritable(slot, True)
            return device
    return None


def wait(folder: Path, devices: Sequence[str], each: int) -> str:
    """Take a slot as soon as one is free; exits when the pipeline that started this process has ended."""
    parent = os.getppid()
    told = False
    while (device := take(folder, devices, each)) is None:
        if not told:
            print(f"waiting for one of {len(devices) * each} slots on {len(devices)} CUDA devices", file=sys.stderr, flush=True)
            told = True
        time.sleep(POLL)
        if os.getppid() != parent:
            sys.exit("error: the pipeline that started this job has ended")
    return device


def main() -> None:
    """Take a slot and become the command; without any device become it at once, as it says itself what it lacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=Path, required=True, help="folder of the slots")
    parser.add_argument("--each", type=int, required=True, help="jobs at a time on a device")
    separator = sys.argv.index("--")
    given, command = parser.parse_args(sys.argv[1:separator]), sys.argv[separator + 1 :]
    devices = present()
    if devices is None:  # one device at least, perhaps: its name is left to CUDA
        wait(given.slots / socket.gethostname(), [""], given.each)
    elif devices:
        os.environ[VISIBLE] = wait(given.slots / socket.gethostname(), devices, given.each)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
