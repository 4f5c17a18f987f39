"""What training, decoding and verification cost on this machine: `python -m glint.bench [--only NAME] [--json]`.

A row is measured in a process of its own, on one CPU thread; what its efficiency means is said in `glint/speed.py`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from glint.asking import Task
from glint.config.model import PRESETS
from glint.config.rl import RLJob, RLRecipe
from glint.device import choose_dtype, peak_mib
from glint.generate import NEVER_SAMPLED, Completion
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.randomness import torch_generator
from glint.speed import HYBRID, RESPONSE_TOKENS, SEED, decode, execution, pretrain_step, timed, write_corpus
from glint.tasks.tokenizer import EOS, encode
from glint.train.rloo import GroupTrainer
from glint.verify import Verifier, benchmark


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
    checkpoint.save(Decoder(HYBRID).initialise(torch_generator(SEED, "init")), folder)
    recipe = RLRecipe.model_validate({"tied_gradient": tied_gradient})
    trainer = FixedGroups(RLJob(rl=recipe, execution=execution(precision), seed=SEED), folder, examples, tokens)
    with Verifier() as verifier:
        row = timed(lambda: trainer.advance(verifier))
    sandbox = benchmark.measure()["cpu_seconds"]
    return row | {"cpu_seconds": row["cpu_seconds"] + sandbox, "sandbox_cpu_seconds": sandbox}


def rows_of(model: str) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """Return the rows of one preset: a pretraining step and decoding, in either precision."""
    recipe = PRESETS[model]
    return {
        f"{model}_step_fp32": lambda folder: pretrain_step("fp32", folder, recipe),
        f"{model}_step_bf16": lambda folder: pretrain_step("bf16", folder, recipe),
        f"{model}_decode": lambda _: decode("bf16", recipe),
        f"{model}_decode_fp32": lambda _: decode("fp32", recipe),
    }


ROWS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "pretrain_step_fp32": lambda folder: pretrain_step("fp32", folder),
    "pretrain_step_bf16": lambda folder: pretrain_step("bf16", folder),
    "rl_group": lambda folder: rl_group("bf16", "both", folder),
    "rl_group_fp32": lambda folder: rl_group("fp32", "both", folder),
    "rl_group_head": lambda folder: rl_group("bf16", "head_only", folder),
    "decode": lambda _: decode("bf16"),
    "decode_fp32": lambda _: decode("fp32"),
    **rows_of("dense"),
    **rows_of("faithful"),
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
