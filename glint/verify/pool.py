"""The trusted side of the sandbox: starts the zygote, hands it requests, and replaces it when it breaks."""

import contextlib
import logging
import marshal
import os
import secrets
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from glint.verify import worker
from glint.verify.policy import BUILTINS

log = logging.getLogger("glint.verify")

START_SECONDS = 60.0
GRACE_SECONDS = 10.0

_PACKAGE = Path(__file__).parent
_BOOT = """
import sys, types
for name, folder in (("glint", sys.argv[1]), ("glint.verify", sys.argv[2])):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from glint.verify import worker
worker.main()
"""


class VerifierError(RuntimeError):
    """The sandbox itself does not work; no verdict is to be had."""


@dataclass(frozen=True)
class Limits:
    """What one candidate may use."""

    cpu_seconds: float = 0.25
    """CPU time for all its cases; the measure of a slow program, since it does not depend on the machine's other work."""
    wall_seconds: float = 10.0
    """Time from start to end; catches what waits without computing."""
    memory_bytes: int = 256 * 2**20
    """Address space, the interpreter's own 20 MiB or so included."""
    output_bytes: int = 2**20
    """Length of the answer."""


class Request(NamedTuple):
    """What a candidate's process is told."""

    source: str
    function: str
    arguments: list[bytes]
    """Marshalled one by one, so that no two share a list."""


class Ending(NamedTuple):
    """How a candidate's process ended; the fates are those of `worker.Zygote`."""

    fate: str
    status: int
    seconds: float
    lines: list[str] | None
    """The answer, one line a case; None where the answer is not whole."""


class Pool:
    """A zygote and the candidates in flight under it, at most `slots` at a time."""

    def __init__(self, slots: int, limits: Limits) -> None:
        self.slots, self.limits = slots, limits
        self.walls: dict[str, str] = {}
        self._next_number = 0
        self._start()

    def _start(self) -> None:
        """Start a bare interpreter: no site, no user folders, an empty environment but for what finds its libraries, and fixed hashes.

        `-I` would ignore the hash seed too, and the order of a set of strings would change from run to run.
        """
        environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
        command = [sys.executable, "-P", "-s", "-S", "-W", "ignore", "-c", _BOOT, str(_PACKAGE.parent), str(_PACKAGE)]
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._process = subprocess.Popen(
            command, stdin=requests, stdout=answers, env={**environment, "PYTHONHASHSEED": "0"}, cwd="/", start_new_session=True
        )
        os.close(requests)
        os.close(answers)
        self._inbox = bytearray()
        self._outbox = bytearray()
        os.set_blocking(self._requests, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._answers, selectors.EVENT_READ)
        self._greet()

    def _greet(self) -> None:
        """Hand over the setting and log which walls stand."""
        with tempfile.TemporaryDirectory(prefix="glint-root-") as root:
            Path(root).chmod(0o711)
            setting = {"limits": asdict(self.limits), "slots": self.slots, "builtins": sorted(BUILTINS), "root": root}
            self._outbox += worker.frame(setting)
            try:
                self.walls = self._exchange(START_SECONDS)[0]
            except EOFError as error:
                self._kill()
                self._release()
                raise VerifierError(f"the sandbox process of {sys.executable} did not start") from error
        missing = {name: reason for name, reason in self.walls.items() if reason}
        log.info("sandbox walls standing: %s", ", ".join(name for name in self.walls if name not in missing))
        if missing:
            log.warning("sandbox walls missing: %s", "; ".join(f"{name} ({reason})" for name, reason in missing.items()))

    def run(self, requests: Sequence[Request]) -> list[Ending | None]:
        """Return how each request ended, in order; None for those that were lost with a zygote, which is replaced."""
        endings: list[Ending | None] = [None] * len(requests)
        nonces = [secrets.token_hex(8) for _ in requests]
        # Numbers go on from call to call: answers to an earlier call that was interrupted are known by theirs.
        first, self._next_number = self._next_number, self._next_number + len(requests)
        sent = answered = 0
        try:
            while answered < len(requests):
                # Twice the slots: one waits in the pipe for each that runs.
                while sent < len(requests) and sent - answered < 2 * self.slots:
                    self._outbox += worker.frame((first + sent, nonces[sent], *requests[sent]))
                    sent += 1
                for number, fate, status, seconds, output in self._exchange(self.limits.wall_seconds + GRACE_SECONDS):
                    if number >= first:
                        endings[number - first] = Ending(fate, status, seconds, _whole_answer(output, nonces[number - first]))
                        answered += 1
        except EOFError:
            log.warning("the sandbox process broke; a new one takes its place")
            self._kill()
            self._release()
            self._start()
        return endings

    def _exchange(self, seconds: float) -> list[Any]:
        """Write what waits and return the messages that have arrived, at least one; EOFError if the zygote is gone or silent."""
        while not (messages := self._messages()):
            self._watch_requests()
            ready = self._selector.select(seconds)
            if not ready:
                raise EOFError
            for key, _ in ready:
                if key.fd == self._answers:
                    self._read()
                else:
                    self._write()
        return messages

    def _watch_requests(self) -> None:
        """Ask whether the zygote takes more, only while there is more."""
        watched = self._requests in self._selector.get_map()
        if self._outbox and not watched:
            self._selector.register(self._requests, selectors.EVENT_WRITE)
        elif watched and not self._outbox:
            self._selector.unregister(self._requests)

    def _write(self) -> None:
        try:
            written = os.write(self._requests, self._outbox)
        except BrokenPipeError as error:
            raise EOFError from error
        del self._outbox[:written]

    def _read(self) -> None:
        chunk = os.read(self._answers, worker.PIPE_CHUNK)
        if not chunk:
            raise EOFError
        self._inbox += chunk

    def _messages(self) -> list[Any]:
        """Take the whole messages out of the inbox."""
        messages = []
        while len(self._inbox) >= 4:
            end = 4 + struct.unpack_from("<I", self._inbox)[0]
            if len(self._inbox) < end:
                break
            messages.append(marshal.loads(self._inbox[4:end]))
            del self._inbox[:end]
        return messages

    def close(self) -> None:
        """Let the zygote end by itself, with all of its children; kill it if it does not."""
        self._release()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        """Kill the zygote; where process namespaces exist, the kernel kills its children with it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _release(self) -> None:
        self._selector.close()
        os.close(self._requests)
        os.close(self._answers)


def _whole_answer(output: bytes, nonce: str) -> list[str] | None:
    """Return the lines between the nonces, or None."""
    lines = output.decode("latin-1").split("\n")
    return lines[1:-1] if len(lines) > 1 and lines[0] == lines[-1] == nonce else None
