"""One run of a pretraining study: draw the examples, train on them from random weights, score the model on the way.

A run takes seconds, less than a process needs to start for each part, so the three are one job; killed, it starts anew.
"""

from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.numpy import save_file

from glint.config.expressions import ExpressionsJob
from glint.config.pretraining import PretrainJob
from glint.files import replacing, write_parquet
from glint.scoring import Scored, score, write_and_run
from glint.tasks.corpus import tokenise
from glint.tasks.expressions import draw_examples
from glint.train.pretrain import Pretrainer, write_record
from glint.train.progress import Progress
from glint.verify import Verifier


def train(job: ExpressionsJob, out: Path) -> None:
    """Write to the folder `out`: examples, token ids, scores of every checkpoint, written expressions, metrics and receipt.

    Raises ValueError where the loss stops being finite, VerifierError where the sandbox fails.
    """
    plan = job.expressions
    examples = draw_examples(plan, job.pretraining.batch, job.seed)
    write_parquet(out / "examples.parquet", examples)
    with replacing(out / "tokens.safetensors") as temporary:
        save_file(tokenise(examples), temporary)
    trainer = Pretrainer(_training(job), out / "tokens.safetensors")
    scored = Scored.all_of(examples)
    scores: list[dict[str, Any]] = []
    completions: list[dict[str, Any]] = []
    progress = Progress("step", job.pretraining.steps, 0)
    with Verifier() as verifier:
        while trainer.step < job.pretraining.steps:
            trainer.advance()
            step = {"step": trainer.step}
            if trainer.step in plan.checkpoints:
                scores += [step | row for row in score(trainer.model, scored)]
            if trainer.step in plan.generation_steps:
                completions += [step | row for row in write_and_run(trainer.model, scored, plan.max_new_tokens, verifier)]
            progress.report(trainer.step, f"loss {trainer.metrics[-1]['loss']:.4f}")
    write_parquet(out / "scores.parquet", pd.DataFrame(scores))
    write_parquet(out / "completions.parquet", pd.DataFrame(completions))
    write_record(trainer, out)


def _training(job: ExpressionsJob) -> PretrainJob:
    """Return the training as the trainer takes it; it is scored in memory, so that no checkpoint needs a file."""
    return PretrainJob(
        model=job.model, pretraining=job.pretraining, execution=job.execution, seed=job.seed, steps=job.pretraining.steps, checkpoints=()
    )
