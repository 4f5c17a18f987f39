"""Completions of checkpoints, judged twice: by the reward cases and by the property suite."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from glint.asking import Task, judged, read_tasks
from glint.config.evaluation import EvaluateJob
from glint.device import peak_mib, prepare
from glint.files import write_parquet
from glint.generate import Completion, draw_uniforms, generate
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.randomness import torch_generator
from glint.tasks.tokenizer import NEWLINE, encode
from glint.train.progress import receipt
from glint.verify import Candidate, Verdict, Verifier, property_cases

ROWS_AT_A_TIME = 256
"""Completions that are decoded side by side."""


def evaluate(job: EvaluateJob, checkpoints: dict[str, tuple[Path, ...]], examples: Path, out: Path) -> dict[str, Any]:
    """Ask each checkpoint for completions of every task of the job's split, greedily and (where asked) sampled; write one row each.

    Return the receipt. One decoding serves all stop rules: a completion that stops on parsing is a prefix of the one that stops on eos.
    Raises ValueError where a checkpoint is missing or damaged, or the split has no such tasks.
    """
    began = time.perf_counter()
    device, dtype = prepare(job.execution)
    tasks = read_tasks(examples, job.split, job.families, job.tasks_per_family)
    if not tasks:
        raise ValueError(f"{examples} has no tasks in split {job.split!r} of {', '.join(job.families) or 'any family'}")
    rows: list[dict[str, Any]] = []
    with Verifier() as verifier:
        judge = Judge(verifier, job.evaluation.property_inputs)
        for name, folders in checkpoints.items():
            model = checkpoint.load(folders, device, dtype).freeze()
            answered = {"greedy": answer(model, tasks, job, sampled=False)}
            if job.sampled:
                answered["sampled"] = answer(model, tasks, job, sampled=True)
            for mode, completions in answered.items():
                rows += [{"checkpoint": name, "split": job.split, "mode": mode, **row} for row in judge.rows(tasks, completions, job)]
            print(f"{name}: {sum(row['verdict'] == 'passed' for row in rows if row['checkpoint'] == name)} passed", flush=True)
    write_parquet(out, pd.DataFrame(rows))
    return receipt(device, dtype, time.perf_counter() - began, completions=len(rows), peak_mib=round(peak_mib(device), 1))


@torch.no_grad()
def answer(model: Decoder, tasks: list[Task], job: EvaluateJob, *, sampled: bool) -> list[list[Completion]]:
    """Return the completions of each task, ended by eos or by length."""
    plan = job.evaluation
    copies = plan.samples if sampled else 1
    answers: list[list[Completion]] = []
    for first in range(0, len(tasks), max(ROWS_AT_A_TIME // copies, 1)):
        asked = tasks[first : first + max(ROWS_AT_A_TIME // copies, 1)]
        names = [(job.seed, "evaluate", job.split, task.identity) for task in asked]
        uniforms = [draw_uniforms(copies, plan.max_new_tokens, torch_generator(*name)) for name in names] if sampled else None
        answers += generate(model, [encode(task.prompt) for task in asked], uniforms, plan.max_new_tokens, temperature=plan.temperature)
    return answers


def stopped(task: Task, completion: Completion, stop: str) -> Completion:
    """Return `completion` as the stop rule leaves it: `parses` cuts it at the first newline that completes the function."""
    if stop == "parses":
        for length, token in enumerate(completion.ids, start=1):
            if token == NEWLINE and task.is_complete(completion.ids[:length]):
                return Completion(completion.ids[:length], "parses")
    return completion


class Judge:
    """Both verdicts of a completion; equal programs of one task are judged once."""

    def __init__(self, verifier: Verifier, property_inputs: int) -> None:
        self.verifier = verifier
        self.property_inputs = property_inputs
        self._seen: dict[bytes, tuple[Verdict, Verdict]] = {}

    def rows(self, tasks: list[Task], answers: list[list[Completion]], job: EvaluateJob) -> list[dict[str, Any]]:
        """Return one row a task, stop rule and sample."""
        asked = [
            (task, stop, sample, stopped(task, completion, stop))
            for stop in job.evaluation.stops
            for task, completions in zip(tasks, answers, strict=True)
            for sample, completion in enumerate(completions)
        ]
        candidates = [task.candidate(completion.ids) for task, _, _, completion in asked]
        self._judge(candidates, [task.family for task, *_ in asked])
        return [
            self._row(task, stop, sample, completion, candidate, job.seed)
            for (task, stop, sample, completion), candidate in zip(asked, candidates, strict=True)
        ]

    def _judge(self, candidates: list[Candidate], families: list[str]) -> None:
        pairs = zip(candidates, families, strict=True)
        fresh = {candidate.source: (candidate, family) for candidate, family in pairs if candidate.source not in self._seen}
        rewarded = [candidate for candidate, _ in fresh.values()]
        wider = [
            dataclasses.replace(candidate, cases=property_cases(family, candidate.function, self.property_inputs))
            for candidate, family in fresh.values()
        ]
        verdicts = zip(self.verifier.judge(rewarded), self.verifier.judge(wider), strict=True)
        self._seen |= dict(zip(fresh, verdicts, strict=True))

    def _row(self, task: Task, stop: str, sample: int, completion: Completion, candidate: Candidate, seed: int) -> dict[str, Any]:
        verdict, wider = self._seen[candidate.source]
        return {
            "family": task.family,
            "identity": task.identity,
            "seed": seed,
            "stop": stop,
            "sample": sample,
            **judged(completion.ids, completion.ended, verdict),
            "property": wider.verdict,
            "property_passed": wider.passed,
            "property_total": wider.total,
        }
