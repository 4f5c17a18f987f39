"""When a run ends: list scheduling against graphs computed by hand, and the report of what Snakemake would do."""

import pytest

from glint.config.load import load
from pipeline.estimate import REFERENCE, estimate
from pipeline.plan import Plan
from pipeline.planning import cost, duration, read, report, tasks
from pipeline.schedule import Schedule, Task, simulate

STUDY = {"question": "Does it help?", "arms": {"published": {}}, "seeds": [1, 2]}
PLAN = Plan(load({"run": "trial", "studies": {"main": STUDY}}))


def test_a_graph_computed_by_hand():
    """On two cores: a 0-2 and b 0-5, then c 2-6 behind a, then d 6-9 behind b and c."""
    graph = {"a": Task(2, 10), "b": Task(5, 20), "c": Task(4, 30, needs=("a",)), "d": Task(3, 5, needs=("b", "c"))}
    assert simulate(graph, 2) == Schedule(9, 50)
    assert simulate(graph, 1) == Schedule(14, 30)


def test_the_highest_priority_starts_first_and_what_is_not_planned_is_done():
    jobs = {"short": Task(1, 1), "other": Task(1, 1, needs=("done before",)), "long": Task(4, 1, priority=1)}
    assert simulate(jobs, 2).seconds == 4
    assert simulate({name: Task(task.seconds, 1) for name, task in jobs.items()}, 2).seconds == 5


def test_a_job_that_wants_all_cores_has_nothing_beside_it():
    jobs = {"all": Task(2, 100, cores=8), "one": Task(3, 10), "two": Task(3, 10, priority=-1)}
    assert simulate(jobs, 2) == Schedule(5, 100)


def test_tasks_that_wait_for_each_other_are_refused():
    with pytest.raises(ValueError, match="2 tasks wait for each other"):
        simulate({"a": Task(1, 1, needs=("b",)), "b": Task(1, 1, needs=("a",)), "c": Task(1, 1)}, 2)


def lines(done):
    """Return a summary as Snakemake prints it, in which the stages `done` need no update."""
    rules = {"corpus": ("draw_corpus", "tokenise_corpus"), "pretrain": ("pretrain_longest_seed",)}
    found = ["output_file\tdate\trule\tlog-file(s)\tstatus\tplan"]
    for job in PLAN.jobs:
        for rule in rules.get(job.stage, (job.stage,)):
            plan = "no update" if job.stage in done else "update pending"
            found.append(f"{PLAN.folder(job)}/{rule}.json\t-\t{rule}\t\tmissing\t{plan}")
    return "\n".join([*found, "reports/trial/report.html\t-\trender_report\t\tmissing\tupdate pending"])


def shown(done, cores):
    return list(report(PLAN, list(read(lines(done), PLAN)), REFERENCE, cores, {}))


def test_the_report_counts_jobs_and_what_is_still_to_do():
    title, _, *rows, whole = shown({"corpus"}, 2)
    jobs = len(PLAN.jobs) + len(PLAN.stage("corpus")) + 1
    assert title == f"Run trial on 2 cores: {jobs} jobs, {jobs - 4} of them still to do"
    cells = {row[:22].strip(): row[22:].split() for row in rows}
    assert cells["corpus"][:2] == ["4", "0"]
    assert cells["pretrain"][:2] == ["2", "2"]
    assert cells["tables and pages"][:2] == ["1", "1"]
    assert "CPU hours" in whole


def test_more_cores_need_less_time_down_to_the_longest_chain():
    planned = list(read(lines(set()), PLAN))
    costs = {one: cost(one, PLAN, REFERENCE) for one in planned}
    assert sum(costs[one].cpu_seconds for one in planned if one.job) == pytest.approx(
        sum(estimate(job).cpu_seconds for job in PLAN.jobs.values())
    )
    one, two, many = (simulate(tasks(planned, costs, PLAN, cores, {}), cores).seconds for cores in (1, 2, 100))
    assert one == pytest.approx(sum(found.cpu_seconds for found in costs.values()))
    assert one / 2 < two < one
    assert many < two


def test_a_job_has_the_priority_of_its_rule():
    planned = list(read(lines(set()), PLAN))
    costs = {one: cost(one, PLAN, REFERENCE) for one in planned}
    found = tasks(planned, costs, PLAN, 2, {"draw_corpus": 2})
    assert {one.rule for one, task in found.items() if task.priority == 2} == {"draw_corpus"}
    assert {task.priority for task in found.values()} == {0, 2}


def test_times_are_for_people():
    assert [duration(seconds) for seconds in (0.4, 59.5, 61, 3600, 5430)] == ["1 s", "60 s", "2 min", "1 h 00 min", "1 h 31 min"]
