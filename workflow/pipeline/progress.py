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
NAMED = r"^Job \d+: (?:.*(?:studies of|rewards of|Planning run|: run) ([\w-]+)(?: as on .*)?|Run ([\w-]+) is complete)$"
"""The lines of a log that name its run, which are those of targets and of analyses."""


@dataclass(frozen=True)
class Jobs:
    """What Snakemake says of the newest run in a directory."""

    done: int
    total: int
    began: float
    """Seconds since the epoch."""
    ended: bool
    run: str | None
    """The run that the log names; None before the first job that does."""

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
        return cls(int(done[-1]) if done else 0, int(total[1]) if total else 0, began, any(words in text for words in ENDED), _named(text))


def _named(log: str) -> str | None:
    found = re.search(NAMED, log, re.MULTILINE)
    return next(filter(None, found.groups())) if found else None


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


def runs(results: Path) -> list[str]:
    """Return the runs in `results`, by name: the folders that have logs."""
    return sorted(folder.parent.name for folder in results.glob("*/logs") if folder.is_dir())


def _changed(logs: Path) -> float:
    return max(path.stat().st_mtime for path in (logs, *logs.rglob("*")))


def newest_run(results: Path) -> str | None:
    """Return the run in `results` whose logs changed last; None where there is none."""
    return max(runs(results), key=lambda run: _changed(results / run / "logs"), default=None)


def _run_of(jobs: Jobs, results: Path) -> str | None:
    """Return of which run the newest log is: what it says, else the run whose logs changed last, if since it began; None if unknown."""
    if jobs.run:
        return jobs.run
    newest = newest_run(results)
    return newest if newest and _changed(results / newest / "logs") >= jobs.began else None


def text(directory: Path, run: str) -> tuple[str, bool]:
    """Return how far the run is, a line for all jobs and one for each job at work, and whether there is no more to see of it.

    Raises ValueError where `results` has runs, but not this one.
    """
    known = runs(directory / "results")
    if known and run not in known:
        raise ValueError(f"there is no run {run} in results/; there are: {', '.join(known)}")
    jobs = Jobs.of(directory / ".snakemake/log")
    if jobs is None:
        return f"run {run}: no run has begun in {directory}", True
    newest = _run_of(jobs, directory / "results") or run
    share = 100 * jobs.done // jobs.total if jobs.total else 0
    counted = f"{jobs.done} of {jobs.total} jobs done ({share} %){', ended' if jobs.ended else ''}"
    if newest != run:
        return f"run {run}: not at work; the newest log is that of run {newest}: {counted}", True
    head = f"run {run}: {counted}"
    at_work = [] if jobs.ended else working(directory / "results" / run, jobs.began)
    return "\n".join([head, *(f"  {name}: {line}  ({time.time() - changed:.0f} s ago)" for name, changed, line in at_work)]), jobs.ended
