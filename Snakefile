"""Glint: from random weights to a report, as one pipeline. This file only wires; `rules/` holds one file a stage."""

import sys
from pathlib import Path

ROOT = Path(workflow.basedir)
sys.path[:0] = [str(ROOT), str(ROOT / "workflow")]

if not workflow.overwrite_configfiles:

    configfile: str(ROOT / "config/published.yaml")


# Jobs run in the environment that is active. The image is for `--sdm apptainer`, and names a base for Snakemake's linter.
container: "docker://python:3.13-slim"


include: "rules/common.smk"


rule all:
    """Everything: the report and all that it rests on (default)."""
    input:
        everything,
    message:
        "Run {RUN} is complete"


include: "rules/corpus.smk"
include: "rules/pretraining.smk"
include: "rules/rl.smk"
include: "rules/evaluation.smk"
include: "rules/trace.smk"
include: "rules/expressions.smk"
include: "rules/vision.smk"
include: "rules/recall.smk"
include: "rules/architecture.smk"
include: "rules/report.smk"
include: "rules/cards.smk"
include: "rules/targets.smk"


# Not in a job on a cluster: the run that has sent it has looked, and writes records while the job reads them.
if not workflow.remote_exec:
    CODE.trees.remember()
    or_exit(guards.check_records, planned_files(), Path(".snakemake"))
LOCK = guards.DirectoryLock(Path(".snakemake/glint.lock"))


onstart:
    or_exit(LOCK.hold)


onsuccess:
    if not {"plan", "plan_reference"} & {*sys.argv}:  # those say what a run would take; results of an earlier one are not theirs
        print(headline.text(CONFIG, Path(REPORTS)))


onerror:
    print(f"A job failed or was stopped: its last lines stand above, all logs under {RESULTS}/logs/. The same command goes on from there.")
