"""A Slurm of two nodes on this one machine, reachable on loopback alone: for tests, and to try the profile without a cluster.

`python -m tests.pipeline.cluster` starts one, says how to use it, and stops it when its input ends (Ctrl-D) or it is interrupted.
Everything that it writes lies in one folder; nothing of the system is changed, and no Slurm that the machine may have is touched.
"""

import contextlib
import ctypes
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
ADMINISTRATORS = ("/usr/sbin", "/usr/local/sbin")
"""Where the daemons lie, which is in few people's PATH."""
PATIENCE = 60.0
PR_SET_PDEATHSIG = 1
CONTROLLER, MUNGE = "slurmctld", "munged"
NODES = ("cpu", "gpu")

SETTINGS = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/prolog
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_min_interval=0
EnforcePartLimits=ALL
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
MinJobAge=3600
ReturnToService=2
KillWait=60
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=cpu NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=64000
NodeName=gpu NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=64000 Gres=gpu:1
PartitionName=main Nodes=cpu Default=YES MaxTime=1440
PartitionName=gpu Nodes=gpu MaxTime=1440
"""
PROLOG = """\
#!/bin/sh
echo "$SLURM_JOB_ID ${{CUDA_VISIBLE_DEVICES-none}}" >> {folder}/devices
"""
"""What every job step runs first: which GPUs Slurm lets it see."""
WRAPPER = """\
#!/bin/sh
export SLURM_CONF={folder}/slurm.conf
exec {program} "$@"
"""
"""The executor takes SLURM_CONF from the environment of the inner `srun`."""


def missing() -> str:
    """Return why no Slurm can be started here, as a sentence; empty where one can."""
    if sys.platform != "linux":
        return "Slurm runs on Linux alone."
    absent = [name for name in PROGRAMS if _program(name) is None]
    return f"there is no {' '.join(absent)} here; Debian's packages slurm-wlm and munge have them" if absent else ""


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *ADMINISTRATORS]))


class Cluster:
    """The daemons of a Slurm whose files lie in `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {"PATH": f"{folder}/bin{os.pathsep}{os.environ['PATH']}", "SLURM_CONF": f"{folder}/slurm.conf"}
        self._write()

    def _write(self) -> None:
        for name in ("bin", "state", *NODES):
            (self.folder / name).mkdir()
        host = socket.gethostname().partition(".")[0]
        settings = SETTINGS.format(folder=self.folder, host=host, user=getpass.getuser(), ports=_free_ports(3))
        (self.folder / "slurm.conf").write_text(settings)
        (self.folder / "gres.conf").write_text("NodeName=gpu Name=gpu File=/dev/null\n")
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        wrapper = WRAPPER.format(folder=self.folder, program=_program("srun"))
        for path, text in ((self.folder / "prolog", PROLOG.format(folder=self.folder)), (self.folder / "bin/srun", wrapper)):
            path.write_text(text)
            path.chmod(0o755)

    def start(self) -> None:
        """Start every daemon and wait until the nodes take jobs; TimeoutError with the daemons' last words where they do not."""
        files = (
            f"--{kind}={self.folder}/munge.{kind.partition('-')[0]}" for kind in ("socket", "key-file", "pid-file", "log-file", "seed-file")
        )
        self._run(MUNGE, "--foreground", "--force", *files)
        self._wait((self.folder / "munge.socket").exists, "munge answers")
        for name in (CONTROLLER, *NODES):
            self.begin(name)
        self._wait(self.idle, "the nodes are idle")

    def begin(self, name: str) -> None:
        """Start the controller or a node."""
        self._run(CONTROLLER, "-D") if name == CONTROLLER else self._run("slurmd", "-D", "-N", name, called=name)

    def end(self, name: str, by: signal.Signals = signal.SIGTERM) -> None:
        """End one daemon; jobs go on without it."""
        daemon = self.daemons.pop(name)
        daemon.send_signal(by)
        try:
            daemon.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def stop(self) -> None:
        """Cancel all jobs and end every daemon."""
        if CONTROLLER in self.daemons:
            with contextlib.suppress(AssertionError, TimeoutError):
                self.ask("scancel", "--user", getpass.getuser())
                self._wait(lambda: not self.ask("squeue", "--noheader"), "no job is left")
        for name in reversed(list(self.daemons)):
            self.end(name)

    def ask(self, *command: str) -> str:
        """Return what a command of Slurm prints."""
        environment = os.environ | self.environment
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert run.returncode == 0, f"{command}: {run.stdout}{run.stderr}"
        return run.stdout.strip()

    def idle(self) -> bool:
        """Return whether every node waits for jobs."""
        try:
            return self.ask("sinfo", "--Node", "--noheader", "--format=%T").split() == ["idle"] * len(NODES)
        except AssertionError:  # the controller does not answer yet
            return False

    def _run(self, program: str, *arguments: str, called: str | None = None) -> None:
        found = _program(program)
        assert found is not None
        environment = os.environ | self.environment
        with (self.folder / "daemons.log").open("ab") as log:
            # A session of its own: Ctrl-C at a terminal ends the tests, and these end the daemons. Where they cannot, the kernel does.
            self.daemons[called or program] = subprocess.Popen(
                [found, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call of the kernel, which takes no lock
            )

    def _wait(self, true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            if time.monotonic() > end:
                logs = (path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("*.log")))
                raise TimeoutError("\n".join([f"not within {PATIENCE:.0f} seconds: {what}", *logs]))
            time.sleep(0.1)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a Slurm in the new folder `folder`; every daemon has ended when the body has."""
    folder.mkdir(mode=0o755)
    slurm = Cluster(folder)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


def main() -> None:
    """Keep a Slurm until the input ends."""
    if missing():
        sys.exit(f"error: {missing()}")
    with tempfile.TemporaryDirectory() as parent, cluster(Path(parent) / "slurm") as slurm:
        exports = " ".join(f"{name}={value}" for name, value in slurm.environment.items())
        print(f"A Slurm is ready. In another terminal:\n  export {exports}\nCtrl-D ends it.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()


if __name__ == "__main__":
    main()
