"""Next-byte pretraining of one seed from random weights."""

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from glint.config.pretraining import PretrainJob
from glint.device import peak_mib, prepare
from glint.files import write_json, write_lines
from glint.model import checkpoint
from glint.model.decoder import Decoder, count_parameters
from glint.model.layout import Indexing
from glint.model.moe import balance_loss
from glint.randomness import torch_generator
from glint.train.batches import IGNORED, next_token_batch
from glint.train.optimiser import adamw
from glint.train.progress import Progress, receipt
from glint.train.state import SAVE_EVERY_SECONDS, StateStore


class Pretrainer:
    """Model, optimiser and position of one pretraining run."""

    def __init__(self, job: PretrainJob, tokens: Path) -> None:
        self.job = job
        self.device, self.dtype = prepare(job.execution)
        plan = job.pretraining
        self.model = Decoder(job.model, self.dtype).initialise(torch_generator(job.seed, "init")).to(self.device)
        self.optimiser = adamw(self.model.parameters(), plan.lr, plan.betas, plan.weight_decay, self.device)
        self.rows = read_rows(tokens, plan.sequence)
        self.step = 0
        self.seconds = 0.0
        self.metrics: list[dict[str, Any]] = []
        self.tokens = self.real_tokens = 0
        if job.steps * plan.batch > len(self.rows):
            raise ValueError(f"{tokens} holds {len(self.rows)} examples; {job.steps} steps of {plan.batch} need {job.steps * plan.batch}")

    def advance(self) -> None:
        """Take one optimiser step on the next batch; every example is seen once."""
        began = time.perf_counter()
        plan = self.job.pretraining
        rows = self.rows[self.step * plan.batch : (self.step + 1) * plan.batch]
        inputs_N, targets_N, layout = next_token_batch(rows, self.dtype, self.job.model.context)
        self.optimiser.zero_grad()
        hidden = self.model(inputs_N.to(self.device), layout, indexing=Indexing(self.step < plan.dense_steps, []))
        loss = cross_entropy(self.model.logits(hidden.final_ND), targets_N.to(self.device), ignore_index=IGNORED)
        balance = balance_loss(hidden.usage_LE)
        # usage is a share of counts: the balance term is reported and weighed, but carries no gradient
        (loss + plan.balance_weight * balance + hidden.divergence).backward()
        norm = clip_grad_norm_(self.model.parameters(), plan.clip)
        self.step += 1
        self._require_finite(loss.item(), norm.item())
        self.optimiser.step()
        self.model.balance(hidden.usage_LE)
        self.tokens += layout.tokens + len(rows)
        self.real_tokens += sum(map(len, rows))
        self.seconds += time.perf_counter() - began
        losses = {"loss": loss.item(), "balance": balance.item(), "divergence": hidden.divergence.item()}
        record = {"step": self.step, **losses, "lr": plan.lr, "tokens": self.tokens}
        self.metrics.append(record | {"real_tokens": self.real_tokens, "seconds": self.seconds, "grad_norm": norm.item()})

    def _require_finite(self, loss: float, norm: float) -> None:
        if not (abs(loss) < float("inf") and norm < float("inf")):
            raise ValueError(
                f"step {self.step} of seed {self.job.seed}: the loss is {loss}, the gradient norm {norm}; lower pretraining.lr"
            )

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs."""
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "metrics": self.metrics,
            "counts": {name: getattr(self, name) for name in ("step", "seconds", "tokens", "real_tokens")},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state` has returned."""
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.metrics = state["metrics"]
        for name, value in state["counts"].items():
            setattr(self, name, value)


def read_rows(tokens: Path, sequence: int) -> list[NDArray[np.uint16]]:
    """Return the pretraining rows in the file `tokens`, each cut to `sequence` ids."""
    try:
        stored = load_file(tokens)
    except SafetensorError as error:
        raise ValueError(f"{tokens} is damaged ({error}); delete it and run again") from error
    ids, offsets = stored["ids"], stored["offsets"].tolist()
    return [ids[start : min(end, start + sequence)] for start, end in itertools.pairwise(offsets)]


def step_name(step: int) -> str:
    """Return the folder name of a pretraining checkpoint."""
    return f"step-{step:04d}"


def pretrain(job: PretrainJob, tokens: Path, out: Path, state: Path, save_every: float = SAVE_EVERY_SECONDS) -> None:
    """Train to `job.steps`, resuming from the folder `state`; write checkpoints, metrics and receipt to `out`.

    The state is saved every `save_every` seconds.

    Raises ValueError where the loss stops being finite or the tokens do not suffice.
    """
    with StateStore(state, save_every) as store:
        trainer = Pretrainer(job, tokens)
        saved = store.load()
        if saved is not None:
            trainer.restore(saved)
        elif 0 in job.checkpoints:
            checkpoint.save(trainer.model, out / step_name(0))
        progress = Progress("step", job.steps, trainer.step)
        while trainer.step < job.steps:
            trainer.advance()
            if trainer.step in job.checkpoints:
                checkpoint.save(trainer.model, out / step_name(trainer.step))
            last = trainer.metrics[-1]
            progress.report(
                trainer.step, f"loss {last['loss']:.4f}  {last['real_tokens'] / last['seconds']:.0f} tokens/s  {trainer.device}"
            )
            store.offer(trainer.state, trainer.step)
    write_record(trainer, out)


def write_record(trainer: Pretrainer, out: Path) -> None:
    """Write the metrics of every step and the receipt to the folder `out`."""
    write_lines(out / "metrics.jsonl", trainer.metrics)
    parameters = {"total": count_parameters(trainer.model), "active": count_parameters(trainer.model, active=True)}
    facts = {"parameters": parameters, "real_tokens": trainer.real_tokens, "peak_mib": round(peak_mib(trainer.device), 1)}
    write_json(out / "receipt.json", receipt(trainer.device, trainer.dtype, trainer.seconds, **facts))
