"""The walls around the process in which candidates run, and a report of those that stand on this platform."""

import ctypes
import math
import os
import resource
import signal
from collections.abc import Callable, Mapping
from typing import Any

Limits = Mapping[str, Any]
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
CAPABILITY_VERSION_3 = 0x20080522
NOBODY = 65534

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the C library; AttributeError where the platform has none of that name, OSError where it fails."""
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def raise_walls(root: str) -> dict[str, str]:
    """Cut this process off for good: namespaces, an empty root directory, no privileges.

    Return each wall with an empty text where it stands, else with the reason why it does not. Root makes its namespaces by privilege and
    then becomes nobody (the limit on processes does not bind root); other users get the privilege from a user namespace and drop it again.
    """
    privileged = os.geteuid() == 0
    report: dict[str, str] = {}
    if not privileged:
        _try(report, "user namespace", lambda: _call("unshare", CLONE_NEWUSER))
    for name, flag in {"network namespace": CLONE_NEWNET, "process namespace": CLONE_NEWPID, "ipc namespace": CLONE_NEWIPC}.items():
        _try(report, name, lambda flag=flag: _call("unshare", flag))  # type: ignore[misc]
    _try(report, "empty root directory", lambda: _enter(root))
    _try(report, "no privileges", _become_nobody if privileged else _drop_capabilities)
    _try(report, "no new privileges", lambda: _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    return report


def _try(report: dict[str, str], name: str, build: Callable[[], None]) -> None:
    try:
        build()
    except (OSError, AttributeError) as error:
        report[name] = str(error) or type(error).__name__
    else:
        report[name] = ""


def _enter(root: str) -> None:
    os.chroot(root)
    os.chdir("/")


def _become_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, where the kernel can."""
    if hasattr(_libc, "prctl"):
        _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def confine(limits: Limits) -> list[str]:
    """Limit this process, which is about to run one candidate: CPU time, memory, and no new process, file or descriptor.

    The timer ends the process at the exact CPU time, whatever it computes; the kernel's own limit counts whole seconds and comes after.
    Return the names of the limits that the platform refuses.
    """
    os.setpgid(0, 0)
    refused = []
    seconds = math.ceil(limits["cpu_seconds"]) + 1
    memory = limits["memory_bytes"]
    for name, soft, hard in (
        ("RLIMIT_CPU", seconds, seconds + 1),
        ("RLIMIT_AS", memory, memory),
        ("RLIMIT_CORE", 0, 0),
        ("RLIMIT_FSIZE", 0, 0),
        ("RLIMIT_NPROC", 0, 0),
        ("RLIMIT_NOFILE", 0, 0),
    ):
        try:
            resource.setrlimit(getattr(resource, name), (soft, hard))
        except (OSError, ValueError):
            refused.append(name)
    signal.setitimer(signal.ITIMER_PROF, limits["cpu_seconds"])
    return refused


def probe(limits: Limits) -> dict[str, str]:
    """Confine this process and try what is forbidden now; report as `raise_walls` does."""
    refused = confine(limits)
    return {
        "resource limits": ", ".join(refused),
        "memory limit": _refused(lambda: bytearray(limits["memory_bytes"]), "a larger block of memory was given"),
        "process limit": _refused(_fork_and_end, "a process was started"),
        "file limit": _refused(os.pipe, "a descriptor was opened"),
    }


def _refused(attempt: Callable[[], object], otherwise: str) -> str:
    try:
        attempt()
    except (OSError, MemoryError):
        return ""
    return otherwise


def _fork_and_end() -> None:
    if os.fork() == 0:
        os._exit(0)
