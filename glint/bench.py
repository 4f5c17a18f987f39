"""What training, decoding and verification cost on this machine: `python -m glint.bench [--only NAME] [--json]`.

A row is measured in a process of its own, on one CPU thread. Efficiency is 6 (training) or 2 (decoding) x active parameters x real
tokens over (CPU time x the best rate of square matrix products of the same dtype and threads, measured in the same process).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from safetensors.numpy import save_file

from glint.asking import Task
from glint.config.corpus import CorpusRecipe
from glint.config.execution import ExecutionRecipe
from glint.config.model import DENSE, ModelRecipe
from glint.config.pretraining import PretrainingRecipe, PretrainJob
from glint.config.rl import RLJob, RLRecipe
from glint.device import choose_dtype, peak_mib, prepare
from glint.generate import NEVER_SAMPLED, Completion, draw_uniforms, generate
from glint.model import checkpoint
from glint.model.decoder import Decoder, count_parameters
from glint.randomness import torch_generator
from glint.tasks.corpus import draw_examples, tokenise
from glint.tasks.tokenizer import EOS, encode
from glint.train.pretrain import Pretrainer
from glint.train.rloo import GroupTrainer
from glint.verify import Verifier, benchmark

SEED = 42
WARM_UP, MEASURED = 3, 5
CORPUS = CorpusRecipe(pretrain_examples=32 * (WARM_UP + MEASURED))
RESPONSE_TOKENS = 48
HYBRID = ModelRecipe()


def execution(precision: str) -> ExecutionRecipe:
    """Return one CPU thread at `precision`."""
    return ExecutionRecipe.model_validate({"device": "cpu", "precision": precision, "threads": 1})


def timed(step: Callable[[], object], warm_up: int = WARM_UP, measured: int = MEASURED) -> dict[str, float]:
    """Return the median CPU and wall seconds of `step`, after a warm-up that is not counted."""
    cpu, wall = [], []
    for turn in range(warm_up + measured):
        began = time.process_time(), time.perf_counter()
        step()
        if turn >= warm_up:
            cpu.append(time.process_time() - began[0])
            wall.append(time.perf_counter() - began[1])
    return {"cpu_seconds": statistics.median(cpu), "wall_seconds": statistics.median(wall)}


def best_product_rate(dtype: torch.dtype, sizes: tuple[int, ...] = (1024, 2048, 4096)) -> float:
    """Return the best rate, in operations a second, of square matrix products of these sizes."""
    rates = []
    for size in sizes:
        left, right = (torch.randn(size, size).to(dtype) for _ in range(2))
        seconds = timed(partial(torch.mm, left, right), warm_up=1, measured=3)["cpu_seconds"]
        rates.append(2 * size**3 / seconds)
    return max(rates)


def write_corpus(folder: Path) -> tuple[Path, Path]:
    """Write a small corpus of the published families; return its examples and its tokens."""
    examples = draw_examples(CORPUS, SEED)
    examples.to_parquet(folder / "examples.parquet")
    save_file(tokenise(examples), folder / "tokens.safetensors")
    return folder / "examples.parquet", folder / "tokens.safetensors"


def pretrain_step(precision: str, folder: Path, model: ModelRecipe = HYBRID) -> dict[str, Any]:
    """One pretraining step of the published recipe, batch 32."""
    _, tokens = write_corpus(folder)
    steps = WARM_UP + MEASURED
    plan = PretrainingRecipe()
    job = PretrainJob(model=model, pretraining=plan, execution=execution(precision), seed=SEED, steps=steps, checkpoints=())
    trainer = Pretrainer(job, tokens)
    row = timed(trainer.advance)
    counts = np.diff([0, *(record["real_tokens"] for record in trainer.metrics)])[WARM_UP:]
    real_tokens = float(np.median(counts)) - plan.batch  # the last token of a row is predicted, not read
    operations = 6 * count_parameters(trainer.model, active=True) * real_tokens
    return row | {"efficiency": operations / row["cpu_seconds"] / best_product_rate(trainer.dtype), "real_tokens": real_tokens}


class FixedGroups(GroupTrainer):
    """Groups of 16 x 48 tokens: sampled in full, then replaced by valid programs of that length, rewards forced to have spread."""

    def sample(self, task: Task) -> list[Completion]:
        """Sample for the cost of it, and return programs that the verifier has to run."""
        with patch("glint.generate.NEVER_SAMPLED", (*NEVER_SAMPLED, EOS)):
            sampled = super().sample(task)
        if any(len(completion.ids) != RESPONSE_TOKENS for completion in sampled):
            raise AssertionError("a sample ended early")
        programs = [f"    return {task.argument} + {number}  #".ljust(RESPONSE_TOKENS - 1, "-") + "\n" for number in range(len(sampled))]
        return [Completion(encode(program, bos=False), "parses") for program in programs]

    def _credit(self, rewards_G: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.arange(len(rewards_G)) % 2.0


def rl_group(precision: str, tied_gradient: str, folder: Path) -> dict[str, Any]:
    """One RL group of the published recipe; the CPU time of the sandbox, other processes, is measured apart and added."""
    examples, tokens = write_corpus(folder)
    checkpoint.save(Decoder(ModelRecipe()).initialise(torch_generator(SEED, "init")), folder)
    recipe = RLRecipe.model_validate({"tied_gradient": tied_gradient})
    trainer = FixedGroups(RLJob(rl=recipe, execution=execution(precision), seed=SEED), folder, examples, tokens)
    with Verifier() as verifier:
        row = timed(lambda: trainer.advance(verifier))
    sandbox = benchmark.measure()["cpu_seconds"]
    return row | {"cpu_seconds": row["cpu_seconds"] + sandbox, "sandbox_cpu_seconds": sandbox}


def decode(precision: str, recipe: ModelRecipe = HYBRID) -> dict[str, Any]:
    """Decoding 16 rows of 48 tokens, the prompt included."""
    device, dtype = prepare(execution(precision))
    model = Decoder(recipe, dtype).initialise(torch_generator(SEED, "init")).to(device).freeze()
    prompt = encode(draw_examples(CORPUS, SEED)["prompt"][0])
    uniforms = [draw_uniforms(16, RESPONSE_TOKENS, torch_generator(SEED, "bench"))]
    with patch("glint.generate.NEVER_SAMPLED", (*NEVER_SAMPLED, EOS)):
        row = timed(lambda: generate(model, [prompt], uniforms, RESPONSE_TOKENS, temperature=0.35))
    read = len(prompt) + 16 * (RESPONSE_TOKENS - 1)  # the last token of a row is written, not read
    operations = 2 * count_parameters(model, active=True) * read
    return row | {
        "efficiency": operations / row["cpu_seconds"] / best_product_rate(dtype),
        "tokens_per_second": 16 * RESPONSE_TOKENS / row["cpu_seconds"],
    }


ROWS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "pretrain_step_fp32": lambda folder: pretrain_step("fp32", folder),
    "pretrain_step_bf16": lambda folder: pretrain_step("bf16", folder),
    "rl_group": lambda folder: rl_group("bf16", "both", folder),
    "rl_group_fp32": lambda folder: rl_group("fp32", "both", folder),
    "rl_group_head": lambda folder: rl_group("bf16", "head_only", folder),
    "decode": lambda _: decode("bf16"),
    "decode_fp32": lambda _: decode("fp32"),
    "dense_step_fp32": lambda folder: pretrain_step("fp32", folder, DENSE),
    "dense_step_bf16": lambda folder: pretrain_step("bf16", folder, DENSE),
    "dense_decode": lambda _: decode("bf16", DENSE),
    "dense_decode_fp32": lambda _: decode("fp32", DENSE),
    "verify": lambda _: benchmark.measure(),
}


def measure(name: str) -> dict[str, Any]:
    """Return one row: name, cpu_seconds, wall_seconds, efficiency (None where it has no meaning), peak_mib, and what the row adds."""
    with tempfile.TemporaryDirectory() as folder:
        row = ROWS[name](Path(folder))
    return {"name": name, "efficiency": None} | row | {"peak_mib": round(peak_mib(torch.device("cpu")), 1)}


def in_own_process(name: str) -> dict[str, Any]:
    """Measure one row in a fresh process, so that neither its memory nor its caches are those of another row."""
    command = [sys.executable, "-m", "glint.bench", "--only", name, "--json"]
    row: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return row


def shown(row: dict[str, Any]) -> str:
    """Return a row for people."""
    figures = {key: value for key, value in row.items() if key != "name" and value is not None}
    return f"{row['name']:20}" + "  ".join(f"{key} {value:.4g}" for key, value in figures.items())


def main() -> None:
    """Print one row a line, all or the one asked for, as text or as JSON objects."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=ROWS, help="measure this row alone")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    given = parser.parse_args()
    if choose_dtype("auto", torch.device("cpu")) != torch.bfloat16:
        print("this CPU has no bf16 products: the bf16 rows are emulated and slow", file=sys.stderr)
    for name in [given.only] if given.only else ROWS:
        row = measure(name) if given.only else in_own_process(name)
        print(json.dumps(row) if given.json else shown(row), flush=True)


if __name__ == "__main__":
    main()
