"""A recipe small enough to train in seconds, on which a model learns enough to be rewarded now and then."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.numpy import save_file

from glint.config.corpus import CorpusRecipe
from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe
from glint.config.pretraining import PretrainingRecipe, PretrainJob
from glint.config.rl import RLJob, RLRecipe
from glint.tasks.corpus import draw_examples, tokenise
from glint.train.pretrain import step_name
from glint.train.rloo import train
from glint.train.state import SAVE_EVERY_SECONDS
from glint.verify import Candidate, Verdict

MODEL = ModelRecipe(
    width=32, layers=4, heads=2, experts=2, top_k=1, expert_hidden=64, streams=2, window=8, stride=8, context=160
)  # fmt: skip
FAMILIES = ("increment", "double")
STEPS, BATCH = 120, 4
CPU = ExecutionRecipe(device="cpu", precision="fp32")


@dataclass(frozen=True)
class School:
    """The inputs of an RL run: a corpus, and the checkpoint of a short pretraining on it."""

    examples: Path
    tokens: Path
    pretrained: Path
    selection: Path

    @property
    def start(self) -> Path:
        """Folder of the selected checkpoint."""
        return self.pretrained / step_name(STEPS)

    def train(self, job: RLJob, folder: Path, save_every: float = SAVE_EVERY_SECONDS) -> Path:
        """Run `job` with its state beside its results; return the folder of the results."""
        train(job, self.pretrained, self.selection, self.examples, self.tokens, folder / "out", folder / "state", save_every)
        return folder / "out"


def write_corpus(folder: Path, families: tuple[str, ...] = FAMILIES, pretrain_examples: int = STEPS * BATCH) -> tuple[Path, Path]:
    """Write the examples (Parquet) and the tokens (safetensors) of a small corpus; return their paths."""
    corpus = CorpusRecipe(
        families=families,
        pretrain_examples=pretrain_examples,
        rl_tasks_per_family=6,
        dev_tasks_per_family=1,
        confirm_tasks_per_family=2,
        final_tasks_per_family=1,
    )
    examples = draw_examples(corpus, seed=3)
    folder.mkdir(parents=True, exist_ok=True)
    examples.to_parquet(folder / "examples.parquet", index=False)
    save_file(tokenise(examples), folder / "tokens.safetensors")
    return folder / "examples.parquet", folder / "tokens.safetensors"


def pretrain_job(
    steps: int = STEPS, checkpoints: tuple[int, ...] = (), seed: int = 1, execution: ExecutionRecipe = CPU, **changes: Any
) -> PretrainJob:
    """Return a pretraining job; `changes` are keys of its recipe."""
    recipe: dict[str, Any] = {"steps": steps, "batch": BATCH, "lr": 0.01, "weight_decay": 0.0, "first_checkpoint": 1} | changes
    return PretrainJob(
        model=MODEL,
        pretraining=PretrainingRecipe(**recipe),
        execution=execution,
        seed=seed,
        steps=steps,
        checkpoints=checkpoints or (steps,),
    )


def rl_job(seed: int = 2, execution: ExecutionRecipe = CPU, **changes: Any) -> RLJob:
    """Return an RL job whose samples are hot enough to differ; `changes` are keys of its recipe."""
    recipe: dict[str, Any] = {
        "families": FAMILIES,
        "groups": 4,
        "group_size": 6,
        "temperature": 1.0,
        "max_new_tokens": 24,
        "lr": 1e-3,
    } | changes
    return RLJob(rl=RLRecipe(**recipe), execution=execution, seed=seed)


def select(folder: Path, checkpoint: str) -> Path:
    """Write a selection that names `checkpoint`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "selection.json"
    path.write_text(json.dumps({"checkpoint": checkpoint}))
    return path


def metrics(out: Path) -> list[dict[str, Any]]:
    """Return the records of a run without their clock times."""
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def rollouts(out: Path) -> pd.DataFrame:
    """Return the rollouts of an RL run."""
    return pd.read_parquet(out / "rollouts.parquet")


def weights(out: Path) -> dict[str, bytes]:
    """Return the bytes of every checkpoint file below `out`, by name."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.glob("*/*")) if not path.name.startswith(".")}


class ScriptedVerifier:
    """Stands in for the sandbox: gives out verdicts from a list, group after group."""

    def __init__(self, *groups: str | Exception) -> None:
        self.groups = list(groups)
        self.asked: list[list[Candidate]] = []

    def __enter__(self) -> "ScriptedVerifier":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def judge(self, candidates: list[Candidate]) -> list[Verdict]:
        """Answer with the next group: a letter a candidate (p, f or i), or an exception to raise."""
        self.asked.append(candidates)
        answer = self.groups.pop(0)
        if isinstance(answer, Exception):
            raise answer
        names = {"p": "passed", "f": "failed", "i": "invalid"}
        return [Verdict(names[letter], "", 3 * (letter == "p"), 3, 0.0) for letter in answer]  # type: ignore[arg-type]
