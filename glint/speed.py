"""What a pretraining step and decoding cost on one CPU thread, and how near that comes to what this CPU can do.

Efficiency is 6 (training) or 2 (decoding) x active parameters x real tokens over (CPU time x the best rate of square matrix products of
the same dtype and threads, measured in the same process).
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from safetensors.numpy import save_file

from glint.config.corpus import CorpusRecipe
from glint.config.costs import CostsRecipe
from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe
from glint.config.pretraining import PretrainingRecipe, PretrainJob
from glint.device import prepare
from glint.generate import NEVER_SAMPLED, draw_uniforms, generate
from glint.model.decoder import Decoder, count_parameters
from glint.randomness import torch_generator
from glint.tasks.corpus import draw_examples, tokenise
from glint.tasks.tokenizer import EOS, encode
from glint.train.pretrain import Pretrainer

SEED = 42
WARM_UP, MEASURED = 3, 5
PUBLISHED = PretrainingRecipe()
PRODUCTS = CostsRecipe().products
CORPUS = CorpusRecipe(pretrain_examples=PUBLISHED.batch * (WARM_UP + MEASURED))
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


def best_product_rate(dtype: torch.dtype, sizes: Sequence[int] = PRODUCTS) -> float:
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


def pretrain_step(
    precision: str, folder: Path, model: ModelRecipe = HYBRID, sequence: int = PUBLISHED.sequence, products: Sequence[int] = PRODUCTS
) -> dict[str, Any]:
    """One pretraining step of the published recipe, batch 32."""
    _, tokens = write_corpus(folder)
    steps = WARM_UP + MEASURED
    plan = PUBLISHED.model_copy(update={"sequence": sequence, "dense_steps": 0})  # as every later step
    job = PretrainJob(model=model, pretraining=plan, execution=execution(precision), seed=SEED, steps=steps, checkpoints=())
    trainer = Pretrainer(job, tokens)
    row = timed(trainer.advance)
    counts = np.diff([0, *(record["real_tokens"] for record in trainer.metrics)])[WARM_UP:]
    real_tokens = float(np.median(counts)) - plan.batch  # the last token of a row is predicted, not read
    operations = 6 * count_parameters(trainer.model, active=True) * real_tokens
    return row | {
        "efficiency": operations / row["cpu_seconds"] / best_product_rate(trainer.dtype, products),
        "real_tokens": real_tokens,
        "tokens_per_second": real_tokens / row["cpu_seconds"],
    }


def decode(precision: str, recipe: ModelRecipe = HYBRID, products: Sequence[int] = PRODUCTS) -> dict[str, Any]:
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
        "efficiency": operations / row["cpu_seconds"] / best_product_rate(dtype, products),
        "tokens_per_second": 16 * RESPONSE_TOKENS / row["cpu_seconds"],
    }
