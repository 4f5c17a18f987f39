"""How far a run is, read from what it writes anyway: Snakemake's log and those of the jobs. Nothing here touches the run."""

import re
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

STAMP = "%Y-%m-%dT%H%M%S"
"""How the name of a log of Snakemake begins: when its run began, local time."""
STARTED = "Select jobs to execute"
"""What the log of a run says before its first job, and that of a dry run or of a report does not."""
ENDED = ("Complete log(s):", "Exiting because")


@dataclass(frozen=True)
class Jobs:
    """What Snakemake says of the newest run in a directory."""

    done: int
    total: int
    began: float
    """Seconds since the epoch."""
    ended: bool

    @classmethod
    def of(cls, folder: Path) -> "Jobs | None":
        """Read the newest log of a run in `folder`, `.snakemake/log`; None where no run has begun there."""
        logs = sorted(folder.glob("*.snakemake.log"), reverse=True)
        texts = ((log, log.read_text(encoding="utf-8", errors="replace")) for log in logs)
        found = next((one for one in texts if STARTED in one[1]), None)
        if found is None:
            return None
        log, text = found
        total = re.search(r"^total\s+(\d+)$", text, re.MULTILINE)
        done = re.findall(r"^(\d+) of \d+ steps", text, re.MULTILINE)
        began = datetime.strptime(log.name.partition(".")[0], STAMP).timestamp()
        return cls(int(done[-1]) if done else 0, int(total[1]) if total else 0, began, any(words in text for words in ENDED))


def working(results: Path, since: float) -> list[tuple[str, float, str]]:
    """Return the jobs at work that have said something since then: name, when they last did, and their last line.

    A job whose folder holds its recipe is done: scripts write that last.
    """
    found = []
    for log in sorted((results / "logs").rglob("seed-*.log")):
        name = str(log.relative_to(results / "logs").with_suffix(""))
        changed = log.stat().st_mtime
        if changed >= since and not (results / name / "recipe.json").exists():
            lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
            found += [(name, changed, _printable(line)) for line in [next((line for line in reversed(lines) if line.strip()), "")] if line]
    return found


def _printable(line: str) -> str:
    r"""Return a line that a terminal cannot obey: what does not print, tabs apart, stands as `\xNN`."""
    return "".join(one if one.isprintable() or one == "\t" else "".join(f"\\x{byte:02x}" for byte in one.encode()) for one in line)


def newest_run(results: Path) -> str | None:
    """Return the run in `results` whose logs changed last; None where there is none."""
    runs = [folder for folder in results.glob("*/logs") if folder.is_dir()]
    return max(runs, key=lambda folder: max(path.stat().st_mtime for path in (folder, *folder.iterdir()))).parent.name if runs else None


def text(directory: Path, run: str) -> tuple[str, bool]:
    """Return how far the run is, a line for all jobs and one for each job at work, and whether it has ended."""
    newest = newest_run(directory / "results")
    if newest is not None and newest != run:  # Snakemake's logs do not name their run
        return f"run {run}: {newest} is the run that changed last, and Snakemake's log tells of that one", True
    jobs = Jobs.of(directory / ".snakemake/log")
    if jobs is None:
        return f"run {run}: no run has begun in {directory}", True
    share = 100 * jobs.done // jobs.total if jobs.total else 0
    head = f"run {run}: {jobs.done} of {jobs.total} jobs done ({share} %){', ended' if jobs.ended else ''}"
    at_work = [] if jobs.ended else working(directory / "results" / run, jobs.began)
    return "\n".join([head, *(f"  {name}: {line}  ({time.time() - changed:.0f} s ago)" for name, changed, line in at_work)]), jobs.ended
