"""The process that runs candidates. It imports the standard library and its two neighbours only, and is started bare by the pool.

The zygote waits for requests and forks a fresh child for each, so that no candidate meets what another left behind. A child gets a source
and arguments, never an expected value, and answers with values as text between two copies of a nonce; an answer without both is none.

Messages are a length (four bytes) and a marshalled value. Requests come from the pool, which is trusted; what a child writes travels on as
bytes and is never unmarshalled.
"""

import builtins
import contextlib
import gc
import marshal
import os
import select
import signal
import struct
import sys
import time
import types
from dataclasses import dataclass, field
from typing import Any, NoReturn

from glint.verify import values, walls

REQUESTS, ANSWERS = 3, 4
UNCONFINED = 71
PIPE_CHUNK = 65536


def send(descriptor: int, message: Any) -> None:
    """Write one message, all of it."""
    write_all(descriptor, frame(message))


def frame(message: Any) -> bytes:
    """Return `message` with its length before it."""
    body = marshal.dumps(message)
    return struct.pack("<I", len(body)) + body


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` to a blocking descriptor."""
    while data:
        data = data[os.write(descriptor, data) :]


def receive(descriptor: int) -> Any:
    """Return the next message, or raise EOFError at the end of the stream."""
    (length,) = struct.unpack("<I", _read_exactly(descriptor, 4))
    return marshal.loads(_read_exactly(descriptor, length))


def _read_exactly(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = os.read(descriptor, count - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


@dataclass
class Child:
    """A running candidate."""

    index: int
    process: int
    pipe: int
    started: float
    output: bytearray = field(default_factory=bytearray)


class Zygote:
    """Forks a child a request, at most `slots` at a time, and sends (index, fate, status, seconds, output) as each ends.

    Fates: `ended` (of itself, by the CPU timer or by a crash: `status` is the exit code, or minus the signal), `overdue` (killed past the
    wall limit), `flooded` (killed for too much output), `unforked`.
    """

    def __init__(self, setting: dict[str, Any], report: dict[str, str]) -> None:
        self.limits: walls.Limits = setting["limits"]
        self.slots: int = setting["slots"]
        self.orphans_live = bool(report["process namespace"])
        self.offered = {name: getattr(builtins, name) for name in setting["builtins"]}
        self.children: dict[int, Child] = {}
        self.poll = select.poll()

    def serve(self) -> None:
        """Work until the pool closes its end of the requests."""
        try:
            while True:
                self._listen()
                for descriptor, _ in self.poll.poll(self._milliseconds_left()):
                    if descriptor == REQUESTS:
                        self._start(*receive(REQUESTS))
                    else:
                        self._drain(self.children[descriptor])
                self._end_overdue()
        except EOFError:
            for child in list(self.children.values()):
                self._reap(child)

    def _listen(self) -> None:
        """Hear new requests only while a slot is free."""
        self.poll.register(REQUESTS, select.POLLIN if len(self.children) < self.slots else 0)

    def _milliseconds_left(self) -> float | None:
        if not self.children:
            return None
        oldest = min(child.started for child in self.children.values())
        left: float = oldest + self.limits["wall_seconds"] - time.monotonic()
        return max(0.0, left) * 1000 + 1

    def _start(self, index: int, *request: Any) -> None:
        reader, writer = os.pipe()
        try:
            process = os.fork()
        except OSError as error:
            os.close(reader)
            send(ANSWERS, (index, "unforked", 0, 0.0, str(error).encode()))
        else:
            if process == 0:
                self._become_child(writer, request)
            self.children[reader] = Child(index, process, reader, time.monotonic())
            self.poll.register(reader, select.POLLIN)
        os.close(writer)

    def _become_child(self, writer: int, request: tuple[Any, ...]) -> NoReturn:
        """Confine this process, which has just been forked, run the candidate of `request`, write the answer, and end."""
        status = UNCONFINED
        try:
            os.dup2(writer, REQUESTS)
            os.closerange(REQUESTS + 1, os.sysconf("SC_OPEN_MAX"))
            if self.orphans_live:
                walls.die_with_parent()
            walls.confine(self.limits)
            status = 1
            write_all(REQUESTS, answer(self.offered, *request))
            status = 0
        finally:
            os._exit(status)

    def _drain(self, child: Child) -> None:
        chunk = os.read(child.pipe, PIPE_CHUNK)
        child.output += chunk
        if not chunk:
            self._finish(child, "ended")
        elif len(child.output) > self.limits["output_bytes"]:
            self._finish(child, "flooded")

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for child in [child for child in self.children.values() if now - child.started > self.limits["wall_seconds"]]:
            self._finish(child, "overdue")

    def _finish(self, child: Child, fate: str) -> None:
        status = self._reap(child)
        send(ANSWERS, (child.index, fate, status, time.monotonic() - child.started, bytes(child.output)))

    def _reap(self, child: Child) -> int:
        """Kill the child with all that it started, then take its status; a child that has ended keeps the status it ended with."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.process, signal.SIGKILL)
        self.poll.unregister(child.pipe)
        os.close(child.pipe)
        del self.children[child.pipe]
        return os.waitstatus_to_exitcode(os.waitpid(child.process, 0)[1])


def answer(offered: dict[str, Any], nonce: str, source: str, function: str, arguments: list[bytes]) -> bytes:
    """Return one line a case between two lines of `nonce`, or a line starting in `?` if the source does not compile.

    A case's line is `=`, the value, a tab and the argument after the call; or `!` and what went wrong.
    """
    try:
        code = compile(source, "<candidate>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        lines = [f"?{str(error)!a}"]
    else:
        lines = [run_case(code, function, argument, offered) for argument in arguments]
    return "\n".join([nonce, *lines, nonce]).encode("ascii")


def run_case(code: types.CodeType, function: str, argument: bytes, offered: dict[str, Any]) -> str:
    """Define the function anew, call it with a fresh copy of the marshalled argument, and return the case's line."""
    value = marshal.loads(argument)
    namespace: dict[str, Any] = {"__builtins__": offered.copy()}
    try:
        exec(code, namespace)
        result = values.encode(namespace[function](value))
    except values.NotPlainError as error:
        return f"!returned {error}"
    except BaseException as error:
        return f"!raised {type(error).__name__}"
    try:
        return f"={result}\t{values.encode(value)}"
    except values.NotPlainError as error:
        return f"!changed its argument to {error}"


def probe(limits: walls.Limits) -> dict[str, str]:
    """Return which limits hold in a confined child."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            send(writer, walls.probe(limits))
        finally:
            os._exit(0)
    os.close(writer)
    report: dict[str, str] = receive(reader)
    os.close(reader)
    os.waitpid(process, 0)
    return report


def main() -> None:
    """Take the pipes and the setting from the pool, raise the walls, report them, and serve."""
    os.dup2(0, REQUESTS)
    os.dup2(1, ANSWERS)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.close(nowhere)
    for number in (signal.SIGPROF, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    setting = receive(REQUESTS)
    report = walls.raise_walls(setting["root"])
    if not report["process namespace"]:
        enter_process_namespace()
    report |= probe(setting["limits"])
    gc.freeze()
    send(ANSWERS, report)
    Zygote(setting, report).serve()


def enter_process_namespace() -> None:
    """Go on as the first process of the new namespace: when it ends, the kernel ends every process in it. The old one waits."""
    process = os.fork()
    if process == 0:
        walls.die_with_parent()
        return
    os.close(REQUESTS)
    os.close(ANSWERS)
    os.waitpid(process, 0)
    sys.exit()
