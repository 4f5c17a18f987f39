"""When jobs end if they run side by side: list scheduling over their dependencies, as a run of Snakemake does it."""

import heapq
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Task:
    """One job of a run."""

    seconds: float
    """From its start to its end."""
    mem_mb: float
    cores: int = 1
    priority: int = 0
    """Of the jobs that could start, those with the highest start first."""
    needs: tuple[Hashable, ...] = ()
    """Names of the tasks that must have ended; names of no task have ended before."""


class Schedule(NamedTuple):
    """How a run goes."""

    seconds: float
    """From the first start to the last end."""
    mem_mb: float
    """The most that runs at one time takes together, each job at its own peak."""


def simulate(tasks: Mapping[Name, Task], cores: int) -> Schedule:
    """Return when `tasks` are done on `cores`, in the order of `tasks` where priorities are equal.

    A task that wants more cores than there are takes all of them. Raises ValueError where tasks wait for each other.
    """
    order = {name: place for place, name in enumerate(tasks)}
    missing = {name: sum(need in tasks for need in task.needs) for name, task in tasks.items()}
    waiting: dict[Hashable, list[Name]] = defaultdict(list)
    for name, task in tasks.items():
        for need in task.needs:
            waiting[need].append(name)
    ready = [(-tasks[name].priority, order[name], name) for name, count in missing.items() if not count]
    heapq.heapify(ready)
    running: list[tuple[float, int, Name]] = []
    now = most = mem_mb = 0.0
    free, left = cores, len(tasks)
    while ready or running:
        for name in _startable(ready, tasks, free, cores):
            free -= min(tasks[name].cores, cores)
            mem_mb += tasks[name].mem_mb
            heapq.heappush(running, (now + tasks[name].seconds, order[name], name))
        most = max(most, mem_mb)
        now, _, ended = heapq.heappop(running)
        free += min(tasks[ended].cores, cores)
        mem_mb -= tasks[ended].mem_mb
        left -= 1
        for name in waiting[ended]:
            missing[name] -= 1
            if not missing[name]:
                heapq.heappush(ready, (-tasks[name].priority, order[name], name))
    if left:
        raise ValueError(f"{left} tasks wait for each other")
    return Schedule(now, most)


def _startable(ready: list[tuple[int, int, Name]], tasks: Mapping[Name, Task], free: int, cores: int) -> list[Name]:
    """Take from the heap `ready` what fits into the `free` cores, in order; what does not fit waits."""
    started, kept = [], []
    while ready and free:
        entry = heapq.heappop(ready)
        wanted = min(tasks[entry[2]].cores, cores)
        if wanted <= free:
            free -= wanted
            started.append(entry[2])
        else:
            kept.append(entry)
    for entry in kept:
        heapq.heappush(ready, entry)
    return started
