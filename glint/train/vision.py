"""One run of a vision study: train a language model to name the digit in an image, and score it on held-out images on the way.

Shape suffixes: B images, H rows, W columns, C colour channels, V vocabulary.
A run takes seconds, so it keeps no state; killed, it starts anew.
"""

import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from glint.config.vision import VisionJob
from glint.device import peak_mib, prepare
from glint.files import write_json, write_lines, write_parquet
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.model.vision import VisionLanguageModel, count_all, with_image_ids
from glint.randomness import torch_generator
from glint.tasks.digits import Images, held_out, training_batch
from glint.tasks.tokenizer import CONTROL_IDS, encode
from glint.train.optimiser import adamw
from glint.train.progress import Progress, receipt

ROWS_AT_A_TIME = 50
"""Images of one forward pass when a checkpoint is scored."""


def answer_ids(images: Images) -> Tensor:
    """Return the id of the byte that names each digit."""
    return torch.from_numpy(images.digits_N) + CONTROL_IDS + ord("0")


class VisionTrainer:
    """Model, optimiser and position of one run."""

    def __init__(self, job: VisionJob, start: Path | None) -> None:
        """`start` is the folder of the language model's checkpoint; without it, its weights are random."""
        self.job = job
        plan = job.vision
        self.device, self.dtype = prepare(job.execution)
        decoder = with_image_ids(self._language_model(start), torch_generator(job.seed, "vision", "image ids")).to(self.device)
        decoder.freeze("all" if start is None else "last_block_and_head")
        self.model = VisionLanguageModel(plan, decoder).initialise(torch_generator(job.seed, "vision", "init")).to(self.device)
        self.trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimiser = adamw(self.trained, plan.lr, plan.betas, plan.weight_decay, self.device)
        self.row = self.model.row(encode(plan.prompt))
        self.step = 0
        self.seconds = 0.0
        self.metrics: list[dict[str, Any]] = []

    def _language_model(self, start: Path | None) -> Decoder:
        if start is None:
            return Decoder(self.job.model, self.dtype).initialise(torch_generator(self.job.seed, "init"))
        return checkpoint.load([start], self.device, self.dtype)

    def advance(self) -> None:
        """Take one optimiser step on fresh images: the loss is the cross-entropy of the answer's byte."""
        began = time.perf_counter()
        images = training_batch(self.job.vision, self.job.seed, self.step)
        self.optimiser.zero_grad()
        loss = cross_entropy(self.logits(images.pixels_NHWC), answer_ids(images).to(self.device))
        loss.backward()
        norm = clip_grad_norm_(self.trained, self.job.vision.clip)
        self.step += 1
        if not (abs(loss.item()) < float("inf") and norm.item() < float("inf")):
            raise ValueError(
                f"step {self.step} of seed {self.job.seed}: the loss is {loss.item()}, the gradient norm {norm.item()}; lower vision.lr"
            )
        self.optimiser.step()
        self.seconds += time.perf_counter() - began
        self.metrics.append({"step": self.step, "loss": loss.item(), "grad_norm": norm.item(), "seconds": self.seconds})

    def logits(self, pixels_BHWC: Any) -> Tensor:
        """Return the logits [B, V] of the byte after the prompt."""
        result: Tensor = self.model(torch.from_numpy(pixels_BHWC).to(self.device), self.row)
        return result

    @torch.no_grad()
    def score(self, images: Images) -> list[dict[str, Any]]:
        """Return one row an image: its digit, the likeliest next id, and the log-probability of the right one."""
        parts = [
            self.logits(images.pixels_NHWC[first : first + ROWS_AT_A_TIME]) for first in range(0, len(images.digits_N), ROWS_AT_A_TIME)
        ]
        log_probs_BV = torch.log_softmax(torch.cat(parts), -1).cpu()
        answers_B = answer_ids(images)
        columns = (
            images.digits_N.tolist(),
            answers_B.tolist(),
            log_probs_BV.argmax(-1).tolist(),
            log_probs_BV.gather(1, answers_B[:, None])[:, 0].tolist(),
        )
        return [
            {"step": self.step, "image": index, "digit": digit, "answer": answer, "predicted": predicted, "log_prob": log_prob}
            for index, (digit, answer, predicted, log_prob) in enumerate(zip(*columns, strict=True))
        ]


def train(job: VisionJob, start: Path | None, out: Path) -> None:
    """Write to the folder `out`: predictions of every checkpoint, metrics of every step, and the receipt.

    `start` is the folder of the checkpoint behind the start `selected`, None behind `random`. Raises ValueError where it is damaged, or the
    loss stops being finite.
    """
    plan = job.vision
    trainer = VisionTrainer(job, start)
    images = held_out(plan)
    predictions = trainer.score(images)
    progress = Progress("step", plan.steps, 0)
    while trainer.step < plan.steps:
        trainer.advance()
        if trainer.step in plan.checkpoints:
            predictions += trainer.score(images)
        progress.report(trainer.step, f"loss {trainer.metrics[-1]['loss']:.4f}")
    write_parquet(out / "predictions.parquet", pd.DataFrame(predictions).assign(seed=job.seed, path=plan.path))
    write_lines(out / "metrics.jsonl", trainer.metrics)
    write_json(out / "receipt.json", _receipt(trainer, start))


def _receipt(trainer: VisionTrainer, start: Path | None) -> dict[str, Any]:
    facts = {
        "parameters": {"total": count_all(trainer.model), "active": count_all(trainer.model, active=True)},
        "trainable_parameters": sum(parameter.numel() for parameter in trainer.trained),
        "updates": trainer.step,
        "images": trainer.step * trainer.job.vision.batch,
        "start": start.name if start else "random",
        "peak_mib": round(peak_mib(trainer.device), 1),
    }
    return receipt(trainer.device, trainer.dtype, trainer.seconds, **facts)
