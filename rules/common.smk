"""The plan of this run, and the helpers with which the rules name files, recipes and commands."""

import hashlib
import json
import math
import os
import re
import shlex

from glint.config.base import canonical_json
from glint.config.errors import ConfigError
from glint.config.load import load
from glint.config.share import ShareJob
from glint.config.tree import Config
from pipeline import devices, guards, headline
from pipeline.estimate import estimate
from pipeline.fingerprint import Code, command_hash
from pipeline.plan import Arms, Plan

try:
    CONFIG = load(config)
except ConfigError as error:
    sys.exit(f"Config error: {error}")
if CONFIG.claims and not (ROOT / CONFIG.claims).is_file():
    sys.exit(f"Config error: claims {CONFIG.claims}: there is no such file in {ROOT}")
if CONFIG.shared is not None and not Path(CONFIG.shared).is_dir():
    sys.exit(f"Config error: shared {CONFIG.shared}: there is no such folder")

PLAN = Plan(CONFIG)
ARMS = Arms(PLAN.runs)
RUN = CONFIG.run
RESULTS = f"results/{RUN}"
REPORTS = f"reports/{RUN}"
CODE = Code(ROOT, memory=Path(".snakemake/glint/trees.json"))
STAGE_COMMANDS = {}
PYTHON = shlex.quote(sys.executable)
# Sets "$@" to what a job waits behind: nothing, or a slot of a CUDA device. Jobs of a cluster get their devices from the cluster.
SLOTS = f"{PYTHON} -m pipeline.devices --slots .snakemake/glint/devices --each {CONFIG.jobs_per_gpu} --"
ON_DEVICE = f"set --; [ {{resources.gpu}} = 0 ] || set -- {SLOTS}; " if not workflow.remote_exec else "set --; "

# The jobs import the package of this checkout, whatever else is installed; and NVIDIA's libraries take no TF32 where they compute in fp32.
os.environ.update(PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'workflow'}", NVIDIA_TF32_OVERRIDE="0")
# A job that has asked Slurm for no GPU sees none, even on a node that hides them from nobody.
if workflow.remote_exec and "SLURM_JOB_ID" in os.environ:
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

# What a cluster grants a job beyond its estimate: memory for the two Snakemakes that start it there, time for a slow disk and a slow node.
EXTRA_MB = 500
LEAST_MINUTES = 10
SLOWER_THAN_ESTIMATED = 4
# What reading the results of all jobs takes, and what each of them adds. Measured were 250 MB and 20 seconds at 336 jobs.
ALL_MB, MB_A_JOB = 500, 1
MINUTES_A_JOB = 0.05


class Command:
    """The shell line of a script, and the fingerprint of all that it runs."""

    def __init__(self, script, flags, stage=None, on_device=False, shared=False):
        """`stage` counts the command among those that make the stage; `on_device` lets it wait for a slot; `shared` shares its result."""
        path = ROOT / "workflow/scripts" / f"{script}.py"
        shares = shared and CONFIG.shared is not None
        take, parent = (self.sharing(script, flags), "$$") if shares else ("", "$PPID")
        slot, wait = (ON_DEVICE, '"$@" ') if on_device else ("", "")
        # `exec` leaves no shell between Snakemake and the job (or what shares its result): it sees its parent end, and signals reach it.
        self.line = f"{slot}exec {take}{wait}{PYTHON} {shlex.quote(str(path))} --parent {parent} {flags} > {{log}} 2>&1"
        # For people: what it prints goes to the terminal and to the log.
        self.shown = f"{PYTHON} {shlex.quote(str(path))} {flags} | tee {{log}}"
        self.code = CODE.fingerprint(path) + command_hash(flags)
        self.path, self.flags = path, flags
        if stage:
            STAGE_COMMANDS.setdefault(stage, []).append(self)

    @staticmethod
    def sharing(script, flags):
        """Return what goes before a job whose result is shared."""
        recipe = "--recipe {params.job:q}" if "{params.job:q}" in flags else ""
        folder = shlex.quote(CONFIG.shared).replace("{", "{{").replace("}", "}}")  # Snakemake formats the line
        which = f"--parent $PPID --folder {folder} --name {script} --code {{params.code:q}} {recipe}"
        return f"{PYTHON} -m pipeline.shared {which} --inputs {{input:q}} --outputs {{output:q}} -- "

    def code_for(self, job):
        """Return the fingerprint of what runs for `job`: the modules of mechanisms that its model lacks do not count."""
        return CODE.fingerprint(self.path, PLAN.unused_modules(job)) + command_hash(self.flags)

    def code_of(self, stage):
        """Return a params function: the fingerprint of what runs for the job of `stage`."""
        return lambda wildcards: self.code_for(job_of(stage, wildcards).id)


def result(stage, name):
    """Return the pattern of one result file of a stage."""
    return f"{RESULTS}/{stage}/{{key}}/seed-{{seed}}/{name}"


def log_of(name):
    """Return the pattern of a stage's log."""
    return f"{RESULTS}/logs/{name}/{{key}}/seed-{{seed}}.log"


def benchmark_of(name):
    """Return the pattern of a stage's time and memory record."""
    return f"{RESULTS}/benchmarks/{name}/{{key}}/seed-{{seed}}.tsv"


def job_of(stage, wildcards):
    """Return the planned job that the wildcards name; one sentence if the config asks for no such job."""
    try:
        return PLAN.job(stage, wildcards.key, wildcards.seed)
    except KeyError:
        sys.exit(f"{RESULTS}/{stage}/{wildcards.key}/seed-{wildcards.seed} is no result of this config")


def source(stage, upstream, name):
    """Return an input function: the file `name` of the job's source in the stage `upstream`."""
    return lambda wildcards: f"{PLAN.folder(job_of(stage, wildcards).sources[upstream])}/{name}"


def source_if(stage, upstream, name):
    """Return an input function: as `source`, or nothing where the job has no such source."""
    path = source(stage, upstream, name)
    return lambda wildcards: path(wildcards) if upstream in job_of(stage, wildcards).sources else []


def recipe(stage):
    """Return a params function: the slice of the recipe that the job reads, as one canonical text."""
    return lambda wildcards: job_of(stage, wildcards).recipe


def threads_of(stage):
    """Return a threads function, from the recipe."""
    return lambda wildcards: job_of(stage, wildcards).slice.execution.threads


def runs_elsewhere():
    """Return whether jobs run on other machines than this run does: asked where the run is planned, and in the jobs themselves."""
    return workflow.remote_exec or workflow.non_local_exec


def all_cores(wildcards):
    """Return the cores of this run, so that nothing of it runs beside the job; on a cluster 1, where the job asks for a node of its own."""
    return 1 if runs_elsewhere() else workflow.resource_settings.cores or 1


def memory_of(stage):
    """Return a resources function: the memory of the job, in MiB, and more at each attempt."""
    return lambda wildcards, attempt: attempt * (estimate(job_of(stage, wildcards)).mem_mb + EXTRA_MB)


def runtime_of(stage):
    """Return a resources function: the time that a cluster should grant the job, in minutes, and more at each attempt."""

    def minutes(wildcards, attempt):
        estimated = estimate(job_of(stage, wildcards)).cpu_seconds / 60
        return attempt * (LEAST_MINUTES + math.ceil(SLOWER_THAN_ESTIMATED * estimated))

    return minutes


def memory_of_all(wildcards, attempt):
    """Return the memory of what reads the results of all jobs, in MiB."""
    return attempt * (ALL_MB + MB_A_JOB * len(PLAN.jobs) + EXTRA_MB)


def runtime_of_all(wildcards, attempt):
    """Return the time that a cluster should grant it, in minutes."""
    return attempt * (LEAST_MINUTES + math.ceil(MINUTES_A_JOB * len(PLAN.jobs)))


def gpu_of(stage):
    """Return a resources function: 1 where the job will use a CUDA device, else 0.

    Nobody knows here what the nodes of a cluster have, so there `auto` asks for none.
    """

    def count(wildcards):
        device = job_of(stage, wildcards).slice.execution.device
        return int(device == "cuda" or (device == "auto" and not runs_elsewhere() and devices.expected()))

    return count


def state_of(stage):
    """Return a params function: the folder of a trainer's resumable state, named by the recipe and by all code up to this stage."""

    def folder(wildcards, output):
        job = job_of(stage, wildcards)
        stages = [name.split("/")[0] for name in PLAN.stages_of(job.id)]
        codes = [command.code_for(job.id) for name in stages for command in STAGE_COMMANDS[name]]
        key = hashlib.sha256("\n".join([job.id.key, job.recipe, *codes]).encode()).hexdigest()[:16]
        return f"{RESULTS}/.state/{key}/seed-{wildcards.seed}"

    return folder


def folder_of(wildcards, output):
    """Return the folder in which the first output lies."""
    return os.path.dirname(output[0])


def layers_of(wildcards, input):
    """Return the flags for what lies over the pretrained checkpoint: the selection of the start, and what RL has trained."""
    return " ".join(f"--{name} {shlex.quote(input[name])}" for name in ("selection", "trained") if name in input.keys())


def start_of(wildcards, input):
    """Return the flags for the checkpoint of the language model; none where its weights are random."""
    names = ("pretrained", "selection") if input.selection else ()
    return " ".join(f"--{name} {shlex.quote(str(input[name]))}" for name in names)


def folder_of_input(name):
    """Return a params function: the folder in which the first file of the input `name` lies."""
    return lambda wildcards, input: os.path.dirname(input[name][0] if isinstance(input[name], list) else input[name])


def reported(path, category, caption="", **labels):
    """Return an output that `snakemake --report` shows, with the caption in rules/captions/<category>/; named by its file unless labelled."""
    stem, kind = os.path.splitext(os.path.basename(path))
    caption = f"captions/{category.lower()}/{caption or stem}.rst"
    return report(path, caption=caption, category=category, labels=labels or {"name": stem, "format": kind[1:]})


def every(stage, *names):
    """Return the files `names` of all jobs of a stage."""
    return [f"{PLAN.folder(job.id)}/{name}" for job in PLAN.stage(stage) for name in names]


def front(stage, *names):
    """Return the files `names` that the first seed of the arm in front has of a stage."""
    study = CONFIG.rl_studies()[0]
    plan = CONFIG.studies[study]
    (run,) = (run for run in PLAN.runs if (run.study, run.arm, run.seed) == (study, plan.base, plan.seeds[0]))
    return [f"{PLAN.folder(run.stages[stage])}/{name}" for name in names]


def every_of(kind, stage, *names):
    """Return the files `names` of all jobs of a stage that studies of one kind need."""
    jobs = {run.stages[stage] for run in PLAN.runs if CONFIG.studies[run.study].kind == kind}
    return [f"{PLAN.folder(job)}/{name}" for job in sorted(jobs) for name in names]


def as_written(pattern):
    """Return an output as the rules name it, also where results lie in a storage of their own."""
    if not pattern.is_storage:
        return str(pattern)
    return pattern.storage_object.query.removeprefix(f"{workflow.storage_settings.default_storage_prefix.rstrip('/')}/")


def planned_files():
    """Return every file that the rules make for this config."""
    patterns = {re.sub(r",[^{}]*}", "}", as_written(pattern)) for rule in workflow.rules for pattern in rule.output}
    files = [pattern for pattern in patterns if "{key}" not in pattern]
    for job in PLAN.jobs:
        stage = f"{RESULTS}/{job.stage}/{{key}}/"
        files += [pattern.format(key=job.key, seed=job.seed) for pattern in patterns if pattern.startswith(stage)]
    return sorted(files)


def everything(wildcards):
    """Return every planned file but the checkpoints, which may be cleaned away."""
    return [path for path in planned_files() if Path(path).name != "checkpoints"]


def or_exit(step, *arguments):
    """Take one step; where it refuses, end with its one sentence."""
    try:
        step(*arguments)
    except guards.RefusedError as refused:
        sys.exit(str(refused))
