"""What a run will take before it begins: jobs, CPU hours, memory and time, from what Snakemake would do and from a machine's rates."""

import csv
import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pipeline.estimate import REFERENCE, Estimate, Rates, estimate
from pipeline.plan import Id, Plan
from pipeline.schedule import Task, simulate

TABLES = "tables and pages"
TABLE_SECONDS, TABLE_SECONDS_A_JOB, TABLE_MB = 3.0, 0.006, 260
"""Of one rule that turns results into tables, figures or pages: as such, and for each job of the run."""
COLUMNS = ("stage", "jobs", "to do", "CPU hours", "longest job", "MiB a job")


class Planned(NamedTuple):
    """A job that Snakemake knows."""

    rule: str
    job: Id | None
    """What it is in the plan; None for what makes tables and pages."""
    pending: bool
    """Whether it is still to do."""

    @property
    def stage(self) -> str:
        """The row of the table in which it counts."""
        return self.job.stage if self.job else TABLES


def read(text: str, plan: Plan) -> Iterator[Planned]:
    """Yield each job in Snakemake's summary once."""
    rows = csv.DictReader(text.splitlines(), delimiter="\t")
    pending: dict[tuple[str, Id | None], bool] = {}
    for row in rows:
        name = (row["rule"], _job_of(row["output_file"], plan))
        pending[name] = pending.get(name, False) or row["plan"] != "no update"
    for (rule, job), to_do in pending.items():
        yield Planned(rule, job, to_do)


def _job_of(path: str, plan: Plan) -> Id | None:
    found = re.match(rf"results/{re.escape(plan.config.run)}/(.+)/([0-9a-f]+)/seed-(\d+)/", path)
    return Id(found[1], found[2], int(found[3])) if found else None


def report(plan: Plan, planned: list[Planned], rates: Rates, cores: int, priorities: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of the plan: a table by stage, and the whole; `priorities` are those of the rules that have one."""
    costs = {one: cost(one, plan, rates) for one in planned}
    to_do = [one for one in planned if one.pending]
    found = simulate(tasks(to_do, costs, plan, cores, priorities), cores)
    hours = sum(costs[one].cpu_seconds for one in to_do) / 3600
    yield f"Run {plan.config.run} on {cores} cores: {len(planned)} jobs, {len(to_do)} of them still to do"
    yield row(COLUMNS)
    for stage in dict.fromkeys(one.stage for one in sorted(planned, key=lambda one: one.job is None)):
        yield row(stage_cells([one for one in planned if one.stage == stage], costs))
    yield f"{hours:.2f} CPU hours; {duration(found.seconds)} on {cores} cores, with up to {found.mem_mb / 1024:.1f} GiB of memory at a time"


def stage_cells(planned: list[Planned], costs: dict[Planned, Estimate]) -> tuple[str, ...]:
    """Return the cells of one stage; CPU hours are of what is still to do."""
    to_do = [one for one in planned if one.pending]
    hours = sum(costs[one].cpu_seconds for one in to_do) / 3600
    longest, most = (max(getattr(costs[one], name) for one in planned) for name in ("cpu_seconds", "mem_mb"))
    return planned[0].stage, str(len(planned)), str(len(to_do)), f"{hours:.2f}", duration(longest), str(most)


def cost(one: Planned, plan: Plan, rates: Rates) -> Estimate:
    """Return the estimate of one job; a corpus is made by two rules, which share it."""
    if one.job is None:
        scale = rates.start / REFERENCE.start
        return Estimate((TABLE_SECONDS + TABLE_SECONDS_A_JOB * len(plan.jobs)) * scale, TABLE_MB)
    found = estimate(plan.jobs[one.job], rates)
    return found._replace(cpu_seconds=found.cpu_seconds / 2) if one.job.stage == "corpus" else found


def tasks(
    to_do: list[Planned], costs: dict[Planned, Estimate], plan: Plan, cores: int, priorities: Mapping[str, int]
) -> dict[Planned, Task]:
    """Return what is to do as tasks: a job waits for its sources, tables and pages for all jobs, and for each other in turn."""
    tables = [one for one in to_do if not one.job]
    jobs = tuple(one for one in to_do if one.job)
    rules: dict[Id | None, list[Planned]] = {}
    for one in jobs:
        rules.setdefault(one.job, []).append(one)
    needs: dict[Planned, tuple[Planned, ...]] = {one: tuple(_sources(one, rules, plan)) for one in jobs}
    needs |= {one: (tables[place - 1],) if place else jobs for place, one in enumerate(tables)}
    return {one: Task(*costs[one], cores=_cores(one, plan, cores), priority=priorities.get(one.rule, 0), needs=needs[one]) for one in to_do}


def _sources(one: Planned, rules: dict[Id | None, list[Planned]], plan: Plan) -> Iterator[Planned]:
    """Yield what is to do before a job: its sources, and before a corpus is tokenised that it is drawn."""
    if one.rule == "tokenise_corpus":
        yield from (other for other in rules[one.job] if other != one)
    if one.job:
        for source in plan.jobs[one.job].sources.values():
            yield from rules.get(source, [])


def _cores(one: Planned, plan: Plan, cores: int) -> int:
    """Return the cores that a job takes; what measures times wants nothing beside it."""
    if one.rule == "measure_costs":
        return cores
    execution = getattr(plan.jobs[one.job].slice, "execution", None) if one.job else None
    return execution.threads if execution else 1


def row(cells: tuple[str, ...]) -> str:
    """Return one line of the table."""
    return f"{cells[0]:22}" + "".join(f"{cell:>13}" for cell in cells[1:])


def duration(seconds: float) -> str:
    """Return a time for people, rounded up."""
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
