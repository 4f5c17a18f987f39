"""Two guards: one run at a time in a directory, and no result whose record is lost."""

import base64
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path


class RefusedError(Exception):
    """A run that must not start; the message is one sentence for a person."""


class DirectoryLock:
    """Exclusive use of a working directory, freed by the kernel when the process ends, however it ends.

    A run plans before it asks for the lock (only then it is sure to be a run, not a dry run). The file counts the runs, so that a plan made
    while another run was still at work is noticed.
    """

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self.runs_planned_after = self._runs()

    def hold(self) -> None:
        """Take the lock for the rest of this process; raises RefusedError if another run holds it or has ended since the plan was made."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RefusedError(f"another run is at work in {Path.cwd()}; wait for its end, or give this run its own directory") from error
        if self._runs() != self.runs_planned_after:
            raise RefusedError(f"another run in {Path.cwd()} has ended while this one was planned; start it again")
        os.pwrite(self.descriptor, f"{self.runs_planned_after + 1:020d}".encode(), 0)

    def _runs(self) -> int:
        return int(os.pread(self.descriptor, 20, 0) or b"0")


def check_records(planned: Iterable[str], snakemake: Path) -> None:
    """Refuse to go on if a planned result exists without its record: Snakemake would call it up to date whatever has changed.

    Results of an interrupted job have no record either, but are marked incomplete, and Snakemake makes them anew.
    """
    known = _recorded(snakemake / "metadata") | _recorded(snakemake / "incomplete")
    lost = [path for path in planned if path not in known and os.path.lexists(path)]
    if lost:
        some = " ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
        raise RefusedError(
            f"{len(lost)} results have lost the record of how they were made, so nothing can tell whether they are up to date: {some}. "
            f"Make them anew: delete them, or restore {snakemake}."
        )


def _recorded(folder: Path) -> set[str]:
    """Return the paths that have a whole record; Snakemake names it by the path in base64, cut into folders (@...) where it is long."""
    whole = (path for path in folder.rglob("*") if path.is_file() and path.read_bytes().endswith(b"}"))
    names = (str(path.relative_to(folder)).replace("@", "").replace("/", "") for path in whole)
    return {base64.urlsafe_b64decode(name).decode() for name in names}
