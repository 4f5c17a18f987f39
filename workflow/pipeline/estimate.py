"""What a job will cost, from its recipe alone: CPU seconds on one thread, and peak memory.

The work of a job (tokens trained, tokens decoded, programs judged, processes started) is counted in seconds of the reference machine, and a
machine's `Rates` say how much longer it takes for a unit of each. What a model writes is not known before: answers are taken to be as long,
and programs as often alike or invalid, as in the published run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe
from glint.config.pretraining import PretrainingRecipe
from pipeline.plan import Job
from pipeline.work import Size, decoding_mb, decoding_seconds, pass_seconds, size_of, training_mb, training_seconds

PUBLISHED = ModelRecipe()
SMALL = ModelRecipe(width=48, layers=3, heads=3, expert_hidden=96, experts=4, top_k=1, streams=2, window=24, stride=24, context=128)
"""The model of the published pretraining studies."""
EXAMPLE_TOKENS, PROMPT_TOKENS, EXPRESSION_TOKENS = 108, 82, 75
"""Tokens of an example of the corpus, of its prompt, and of an example of a pretraining study; means."""
ANSWER_TOKENS = 28
"""Tokens that decoding reads for an answer of an evaluation, those of rows that wait for the others included."""
SAMPLE_TOKENS, SAMPLE_STEPS = 22, 27
"""Tokens of a sample of RL, and decoding steps of a group: it goes on until its longest sample ends."""
UPDATED = 0.75
"""Share of the groups of RL that have spread, so that they learn."""
JUDGED = 0.2
"""Programs run for a row of completions: most are invalid or like another one, the rest runs under both judges."""
ROWS_AT_A_TIME = 256
"""Completions that an evaluation decodes side by side."""
ROW_SECONDS = 0.4e-3
"""Python's work on a row of completions."""
DRAWN_SECONDS = 0.08e-3
"""Python's work on an example that is drawn."""
IMAGE_SECONDS = 0.05e-3
"""Drawing an image."""
PATCHES, PATCH_SECONDS = 64, 4.2e-6
"""Patches of an image on the faithful path; seconds a patch and vision block of training."""
CHECKPOINT_SECONDS = 0.3
"""Loading or saving a checkpoint of the published size."""
BASE_MB, LIGHT_MB, SANDBOX_MB = 420, 150, 120
"""Memory of a process that has loaded the library, of one that has not, and of the sandbox."""


class Rates(NamedTuple):
    """What a machine takes for a unit of each kind of work, in CPU seconds, with a job on every core."""

    step: float
    """A pretraining step of the published model: 32 examples, at the precision that `auto` means there."""
    small_step: float
    """A step of the mini model of the pretraining studies: 24 expressions, fp32."""
    decode: float
    """The published model decodes 16 samples of 48 tokens, the prompt included."""
    program: float
    """Judging one program, all processes included."""
    start: float
    """Starting a process that loads the library."""
    precision: str = "bf16"
    """What `auto` means: bf16 where the CPU multiplies it, else fp32."""


class Estimate(NamedTuple):
    """What a job will cost."""

    cpu_seconds: float
    """Of one thread, the sandbox's processes included."""
    mem_mb: int
    """Peak resident memory of all its processes, MiB."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a job, in seconds of the reference machine."""

    large: float = 0.0
    """In passes through models in the precision of the machine."""
    small: float = 0.0
    """In passes through models in fp32."""
    decoding: float = 0.0
    programs: float = 0.0
    """Number of programs judged."""
    starts: float = 0.0
    """Number of processes started."""
    python: float = 0.0
    """In plain Python."""

    def __add__(self, other: "Work") -> "Work":
        """Return both together."""
        return Work(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def times(self, count: float) -> "Work":
        """Return the work `count` times over."""
        return Work(*(getattr(self, name) * count for name in self.__slots__))

    def seconds(self, rates: Rates) -> float:
        """Return the CPU seconds on a machine with `rates`."""
        step = training_seconds(size_of(PUBLISHED), PretrainingRecipe().batch * EXAMPLE_TOKENS, rates.precision)
        small_step = training_seconds(size_of(SMALL), 24 * EXPRESSION_TOKENS, "fp32")
        small = rates.small_step / small_step
        models = self.large * rates.step / step + self.small * small
        decoding = self.decoding * rates.decode / bench_decoding(rates.precision)
        return models + decoding + self.programs * rates.program + self.starts * rates.start + self.python * small


REFERENCE = Rates(step=0.895, small_step=0.0414, decode=0.243, program=0.00142, start=1.33)
"""The reference machine: two cores of an AMD EPYC (AVX512-BF16) with two jobs side by side, one thread each, as `plan` measured it."""


def bench_decoding(precision: str) -> float:
    """Return the reference seconds of the benchmark's row `decode`."""
    return decoding_seconds(size_of(PUBLISHED), 47, 47 * 16, precision) + pass_seconds(size_of(PUBLISHED), PROMPT_TOKENS, precision)


class Models:
    """Passes through the model that a job trains or asks, as work."""

    def __init__(self, model: ModelRecipe, execution: ExecutionRecipe, precision: str) -> None:
        """`precision` is what `auto` means on the machine."""
        self.size: Size = size_of(model)
        self.precision = precision if execution.precision == "auto" else execution.precision
        nearer = self.size.parameters**2 > size_of(PUBLISHED).parameters * size_of(SMALL).parameters
        self.kind = "large" if nearer else "small"

    def reading(self, tokens: float) -> Work:
        """Return the work of forward passes over `tokens`."""
        return Work(**{self.kind: pass_seconds(self.size, tokens, self.precision)})

    def training(self, tokens: float, trained: float = 1.0) -> Work:
        """Return the work of one optimiser step on `tokens`."""
        return Work(**{self.kind: training_seconds(self.size, tokens, self.precision, trained)})

    def decoding(self, steps: float, tokens: float) -> Work:
        """Return the work of `steps` decoding steps that read `tokens`."""
        return Work(decoding=decoding_seconds(self.size, steps, tokens, self.precision))

    def training_mb(self, tokens: float, length: int, trained: float = 1.0) -> float:
        """Return the memory that training on `tokens` in rows of `length` takes beside the process."""
        return training_mb(self.size, tokens, length, self.precision, trained)

    def checkpoints(self, count: float) -> Work:
        """Return the work of saving or loading checkpoints."""
        return Work(python=count * CHECKPOINT_SECONDS * self.size.parameters / size_of(PUBLISHED).parameters)


Stage = Callable[[Job, Models], tuple[Work, float]]
"""The work of a job of one stage that runs a model, and its peak memory in MiB."""


def estimate(job: Job, rates: Rates = REFERENCE) -> Estimate:
    """Return what `job` will cost on a machine with `rates`, with a job on every core."""
    if job.id.stage == "corpus":
        work, mem_mb = _corpus(job)
    elif job.id.stage == "select":
        work, mem_mb = Work(starts=0.15), LIGHT_MB
    else:
        work, mem_mb = STAGES[job.id.stage](job, _models(job, rates.precision))
    return Estimate(work.seconds(rates), round(mem_mb))


def _corpus(job: Job) -> tuple[Work, float]:
    """Both rules, drawing and tokenising."""
    examples = _upstream(job, "corpus").corpus.pretrain_examples
    return Work(starts=0.3, python=examples * DRAWN_SECONDS / 4), LIGHT_MB + examples * 0.003


def _pretrain(job: Job, models: Models) -> tuple[Work, float]:
    plan = _own(job).pretraining
    tokens = plan.batch * min(plan.sequence, EXAMPLE_TOKENS)
    work = models.training(tokens).times(_own(job).steps) + models.checkpoints(len(_own(job).checkpoints)) + Work(starts=1)
    return work, BASE_MB + models.training_mb(tokens, EXAMPLE_TOKENS)


def _evaluate(job: Job, models: Models) -> tuple[Work, float]:
    """Each checkpoint answers greedily and, where asked, sampled; one that is reported answers for the canary too."""
    plan = _own(job).evaluation
    corpus = _upstream(job, "corpus").corpus
    each = getattr(corpus, f"{_own(job).split}_tasks_per_family")
    tasks = min(each, _own(job).tasks_per_family or each) * len(_own(job).families or corpus.families)
    canary = corpus.confirm_tasks_per_family if job.id.stage in REPORTED else 0
    copies = [1, plan.samples] if _own(job).sampled else [1]
    count = max(len(_own(job).checkpoints), 1)
    asked = [(asked, rows) for asked in (tasks, canary) if asked for rows in copies]
    work = sum((_answers(models, plan, *group) for group in asked), Work()).times(count)
    rows = min(ROWS_AT_A_TIME, tasks * max(copies))
    return work + models.checkpoints(count) + Work(starts=1), BASE_MB + SANDBOX_MB + 250 + decoding_mb(models.size, rows)


def _answers(models: Models, plan: Any, tasks: int, copies: int) -> Work:
    """Return the work of answering `tasks`, each `copies` times, and of judging that."""
    batches = -(-tasks // max(ROWS_AT_A_TIME // copies, 1))
    answers = tasks * copies
    rows = answers * len(plan.stops)
    decoding = models.decoding(batches * plan.max_new_tokens, answers * min(ANSWER_TOKENS, plan.max_new_tokens))
    return decoding + models.reading(tasks * PROMPT_TOKENS) + Work(programs=rows * JUDGED, python=rows * ROW_SECONDS)


def _rl(job: Job, models: Models) -> tuple[Work, float]:
    plan = _own(job).rl
    steps, tokens = min(plan.max_new_tokens, SAMPLE_STEPS), plan.group_size * min(plan.max_new_tokens, SAMPLE_TOKENS)
    trained = 1.0 if plan.scope == "all" else 1 / models.size.layers
    updated = 1.0 if plan.zero_spread == "update" else UPDATED
    learning = models.training(PROMPT_TOKENS + tokens, trained).times(updated)
    group = models.reading(PROMPT_TOKENS) + models.decoding(steps, tokens) + Work(programs=plan.group_size / 2) + learning
    memory = models.training_mb(PROMPT_TOKENS + tokens, PROMPT_TOKENS, trained) + decoding_mb(models.size, plan.group_size)
    return group.times(plan.groups) + models.checkpoints(len(plan.checkpoints()) + 1) + Work(starts=1), BASE_MB + SANDBOX_MB + memory


def _trace(job: Job, models: Models) -> tuple[Work, float]:
    """One task a family is read by two policies, and answered by random weights."""
    tasks = len(_upstream(job, "corpus").corpus.families)
    reading = models.reading(2 * tasks * (PROMPT_TOKENS + ANSWER_TOKENS)).times(2)
    work = reading + _answers(models, _own(job).evaluation, tasks, 1) + models.checkpoints(3) + Work(starts=1)
    return work, BASE_MB + SANDBOX_MB + 100 + decoding_mb(models.size, tasks)


def _expressions(job: Job, models: Models) -> tuple[Work, float]:
    plan, task = _own(job).pretraining, _own(job).expressions
    tokens = plan.batch * min(plan.sequence, EXPRESSION_TOKENS)
    scored = (task.held_out + task.structures) * task.evaluation_examples
    training = models.training(tokens).times(plan.steps)
    scoring = models.reading(scored * EXPRESSION_TOKENS).times(len(task.checkpoints))
    written = models.decoding(task.max_new_tokens, scored * task.max_new_tokens / 2) + Work(programs=scored / 2)
    work = training + scoring + written.times(len(task.generation_steps)) + Work(starts=1, python=task.examples * DRAWN_SECONDS)
    return work, BASE_MB + SANDBOX_MB + models.training_mb(tokens, EXPRESSION_TOKENS)


def _vision(job: Job, models: Models) -> tuple[Work, float]:
    plan = _own(job).vision
    selected = plan.start == "selected"
    encoding = PATCHES * plan.layers * PATCH_SECONDS if plan.path == "faithful" else 0.0
    step = models.training(plan.batch * plan.length, 1 / models.size.layers if selected else 1.0)
    step += Work(small=plan.batch * encoding, python=plan.batch * IMAGE_SECONDS)
    scoring = models.reading(plan.held_out * plan.length) + Work(small=plan.held_out * encoding / 3)
    work = step.times(plan.steps) + scoring.times(len(plan.checkpoints)) + models.checkpoints(selected) + Work(starts=1)
    return work, BASE_MB + 40 + models.training_mb(plan.batch * plan.length, plan.length, 0.1 if selected else 1.0)


def _recall(job: Job, models: Models) -> tuple[Work, float]:
    plan = _own(job).recall
    training = sum((models.training(stage.batch * stage.length).times(stage.steps) for stage in plan.stages), Work())
    scoring = models.reading(plan.held_out * plan.length).times(len(plan.checkpoints))
    drawn = Work(starts=1, python=sum(stage.batch * stage.steps for stage in plan.stages) * DRAWN_SECONDS)
    memory = max(models.training_mb(stage.batch * stage.length, stage.length) for stage in plan.stages)
    return training + scoring + drawn, BASE_MB + memory


def _loss(job: Job, models: Models) -> tuple[Work, float]:
    corpus = _upstream(job, "corpus").corpus
    examples = len(corpus.families) * getattr(corpus, f"{_own(job).split}_tasks_per_family")
    tokens = examples * min(_own(job).sequence, EXAMPLE_TOKENS)
    count = len(_own(job).checkpoints)
    work = models.reading(tokens).times(count) + models.checkpoints(count) + Work(starts=1)
    return work, BASE_MB + 100 + decoding_mb(models.size, 0) + models.size.kept_bytes * 6e-4


def _costs(job: Job, models: Models) -> tuple[Work, float]:
    """The two rows of the benchmark, then at every context a process that reads, decodes and trains."""
    plan = _own(job).costs
    products = sum(2 * size**3 for size in plan.products) * 4 * 2
    work = models.training(32 * EXAMPLE_TOKENS).times(8) + models.decoding(8 * 47, 8 * 47 * 16) + Work(large=products / PEAK_PRODUCTS)
    for context in plan.contexts:
        steps = plan.steps + 3
        passes = models.reading(context).times(2 + plan.passes) + models.training(context).times(1 + plan.passes)
        work += passes + models.decoding(steps, steps * plan.rows) + Work(starts=1)
    longest = plan.contexts[-1]
    memory = max(models.training_mb(32 * EXAMPLE_TOKENS, EXAMPLE_TOKENS), models.training_mb(longest, longest))
    return work + Work(starts=1), 2 * BASE_MB + memory


PEAK_PRODUCTS = 1e12
"""Operations a second of the best square product."""
REPORTED = ("evaluate/before", "evaluate/after")
STAGES: dict[str, Stage] = {
    "pretrain": _pretrain,
    "evaluate/pretraining": _evaluate,
    "rl": _rl,
    "evaluate/before": _evaluate,
    "evaluate/curve": _evaluate,
    "evaluate/after": _evaluate,
    "trace": _trace,
    "expressions": _expressions,
    "vision": _vision,
    "recall": _recall,
    "loss": _loss,
    "costs": _costs,
}


def _own(job: Job) -> Any:
    """Return the slice of `job`, whose class follows from its stage."""
    return job.slice


def _upstream(job: Job, stage: str) -> Any:
    """Return the slice of `stage`, the job's own or one that it rests on."""
    return job.slice if job.id.stage == stage else job.upstream[stage]


def _models(job: Job, precision: str) -> Models:
    """Return the passes through the job's own model, or that of the pretraining it rests on."""
    own = _own(job)
    model = own.model if hasattr(own, "model") else _upstream(job, "pretrain").model
    return Models(model, own.execution, precision)
