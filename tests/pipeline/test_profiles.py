"""The profiles say the same where they must, and every rule says what its jobs need."""

import json

import pytest
import yaml
from snakemake.cli import parse_args  # type: ignore[import-untyped]

from tests.pipeline.checkout import ROOT, Checkout

ALIKE = ("rerun_triggers", "max_checksum_file_size", "rerun_incomplete", "nolock", "scheduler", "show_failed_logs", "quiet", "keep_going")
TELL = """
from types import SimpleNamespace
asking = {rule.name: sorted(rule.resources) for rule in workflow.rules if rule.shellcmd and rule.name not in workflow._localrules}
functions = [(PLAN.folder(job.id), memory_of(job.id.stage), runtime_of(job.id.stage), job.id) for job in PLAN.jobs.values()]
functions.append(("all", memory_of_all, runtime_of_all, None))
granted = {folder: [[memory(one, attempt), runtime(one, attempt)] for attempt in (1, 2)] for folder, memory, runtime, one in functions}
print("TOLD", json.dumps([asking, granted]))
"""
"""What a Snakefile tells of its rules and of the jobs of its config: their memory and time at the first two attempts."""


def settings(monkeypatch, *arguments):
    """Return what Snakemake makes of a command line and of the profiles that it loads."""
    monkeypatch.chdir(ROOT)
    return vars(parse_args(arguments)[1])


@pytest.mark.parametrize("profile", ["kubernetes", "s3", "slurm"])
def test_every_profile_holds_all_that_the_default_says_but_its_limit_of_gpus(profile):
    default, other = (yaml.safe_load((ROOT / f"profiles/{name}/profile.yaml").read_text()) for name in ("default", profile))
    assert {name: other.get(name) for name in default if name != "resources"} == {
        name: value for name, value in default.items() if name != "resources"
    }


@pytest.mark.parametrize("option", ["--profile", "--workflow-profile"])
def test_a_run_on_a_cluster_reruns_and_reports_as_a_local_one(monkeypatch, option):
    local, cluster = settings(monkeypatch, "--cores", "1"), settings(monkeypatch, option, "profiles/slurm")
    assert {name: cluster[name] for name in ALIKE} == {name: local[name] for name in ALIKE}
    assert local["executor"] is None
    assert (cluster["executor"], cluster["retries"], cluster["slurm_status_command"]) == ("slurm", 2, "squeue")
    assert cluster["set_resource_scopes"] == {"gpu": "local"}  # the limit of one GPU job at a time is that of one machine


def test_a_site_names_its_partition_beside_the_profile(monkeypatch, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "profile.yaml").write_text("default-resources:\n  slurm_partition: long\n")
    named = settings(monkeypatch, "--profile", str(site), "--workflow-profile", "profiles/slurm")
    assert "slurm_partition" in named["default_resources"]
    assert named["executor"] == "slurm"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return, by config, what every rule asks for and what every job is granted."""
    checkout = Checkout.fresh(tmp_path_factory.mktemp("resources") / "checkout")
    with (checkout.path / "Snakefile").open("a") as snakefile:
        snakefile.write(TELL)

    def of(config):
        text = checkout.snakemake("--dry-run", "--workflow-profile", "profiles/slurm", "--configfile", config)
        return json.loads(text.partition("TOLD ")[2].partition("\n")[0])

    return {name: of(f"config/{name}.yaml") for name in ("quick", "published")}


def test_every_rule_that_goes_to_a_node_says_what_it_needs(told):
    for asking, _ in told.values():
        assert len(asking) > 25
        for rule, given in asking.items():
            assert {"mem_mb", "runtime"} <= set(given), rule


def test_every_job_is_granted_more_at_its_next_attempt(told):
    for _, granted in told.values():
        for folder, ((memory, minutes), (more, longer)) in granted.items():
            assert 500 < memory < 16_000, folder
            assert 10 <= minutes < 24 * 60, folder
            assert (more, longer) == (2 * memory, 2 * minutes)


def test_a_longer_training_and_a_larger_plan_are_granted_more(told):
    quick, published = (told[name][1] for name in ("quick", "published"))
    assert published["all"] > quick["all"]
    longest = [max(minutes for folder, [[_, minutes], _] in grants.items() if "/pretrain/" in folder) for grants in (quick, published)]
    assert longest[1] > 2 * longest[0]
