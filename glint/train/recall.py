"""One run of a recall study: train a model on texts with names, and score on the way how many names it recalls, by their distance.

Shape suffixes: N packed tokens, V vocabulary, Q questions, A bytes of an answer.
A run takes about a minute, so it keeps no state; killed, it starts anew.
"""

import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from glint.config.recall import RecallJob
from glint.device import peak_mib, prepare
from glint.files import write_json, write_lines, write_parquet
from glint.model.decoder import Decoder, count_parameters
from glint.model.layout import Indexing, Layout
from glint.randomness import torch_generator
from glint.tasks.recall import Text, held_out, training_batch
from glint.tasks.tokenizer import BOS, CONTROL_IDS
from glint.train.batches import IGNORED, next_token_batch
from glint.train.optimiser import adamw
from glint.train.progress import Progress, receipt

ROWS_AT_A_TIME = 8
"""Texts of one forward pass when a checkpoint is scored."""


def answer_places(texts: list[Text], letters: int, layout: Layout) -> Tensor:
    """Return the packed positions [Q, A] that predict the bytes of each answer."""
    starts = [end + 1 - length for end, length in zip(layout.last_tokens, layout.lengths, strict=True)]
    # position i of a row holds the byte i - 1, behind the beginning, and predicts byte i
    first_Q = torch.tensor([start + question.answer for start, text in zip(starts, texts, strict=True) for question in text.questions])
    return first_Q[:, None] + torch.arange(letters)


class RecallTrainer:
    """Model, optimiser and position of one run."""

    def __init__(self, job: RecallJob) -> None:
        self.job = job
        plan = job.recall
        self.device, self.dtype = prepare(job.execution)
        self.model = Decoder(job.model, self.dtype).initialise(torch_generator(job.seed, "init")).to(self.device)
        self.optimiser = adamw(self.model.parameters(), plan.lr, plan.betas, plan.weight_decay, self.device)
        self.step = 0
        self.bytes = 0
        self.seconds = 0.0
        self.metrics: list[dict[str, Any]] = []

    def advance(self) -> None:
        """Take one optimiser step on fresh texts.

        The loss is the mean cross-entropy of all bytes, which teaches a model to look at the bytes before, and that of the answers.
        """
        began = time.perf_counter()
        plan = self.job.recall
        texts = training_batch(plan, self.job.seed, self.step)
        inputs_N, targets_N, places_QA, layout = self._packed(texts)
        self.optimiser.zero_grad()
        hidden = self.model(inputs_N, layout, indexing=Indexing(False, []))
        logits_NV = self.model.logits(hidden.final_ND)
        loss = cross_entropy(logits_NV, targets_N, ignore_index=IGNORED)
        places = places_QA.flatten()
        answers = cross_entropy(logits_NV[places], targets_N[places])
        (loss + plan.answer_weight * answers + hidden.divergence).backward()
        norm = clip_grad_norm_(self.model.parameters(), plan.clip)
        self.step += 1
        losses = {"loss": loss.item(), "answer_loss": answers.item(), "divergence": hidden.divergence.item()}
        self._require_finite(losses["loss"], norm.item())
        for group in self.optimiser.param_groups:
            group["lr"] = plan.lr * min(1.0, self.step / max(plan.warmup, 1))
        self.optimiser.step()
        self.model.balance(hidden.usage_LE)
        self.bytes += sum(len(text.content) for text in texts)
        self.seconds += time.perf_counter() - began
        self.metrics.append({"step": self.step, **losses, "bytes": self.bytes, "grad_norm": norm.item(), "seconds": self.seconds})

    def _packed(self, texts: list[Text]) -> tuple[Tensor, Tensor, Tensor, Layout]:
        """Return inputs [N], targets [N], the places of the answers [Q, A] and the layout."""
        rows = [[BOS, *(CONTROL_IDS + byte for byte in text.content)] for text in texts]
        inputs_N, targets_N, layout = next_token_batch(rows, self.dtype, self.job.model.context)
        places_QA = answer_places(texts, self.job.recall.letters, layout)
        return inputs_N.to(self.device), targets_N.to(self.device), places_QA.to(self.device), layout

    def _require_finite(self, loss: float, norm: float) -> None:
        if not (abs(loss) < float("inf") and norm < float("inf")):
            raise ValueError(f"step {self.step} of seed {self.job.seed}: the loss is {loss}, the gradient norm {norm}; lower recall.lr")

    @torch.no_grad()
    def score(self, texts: list[Text]) -> list[dict[str, Any]]:
        """Return one row a question: whether every byte of the answer is the likeliest one, with the text up to it given."""
        rows = []
        for first in range(0, len(texts), ROWS_AT_A_TIME):
            part = texts[first : first + ROWS_AT_A_TIME]
            inputs_N, targets_N, places_QA, layout = self._packed(part)
            final_ND = self.model(inputs_N, layout).final_ND
            log_probs_QAV = torch.log_softmax(self.model.logits(final_ND[places_QA]), -1)
            targets_QA = targets_N[places_QA]
            right_Q = (log_probs_QAV.argmax(-1) == targets_QA).all(-1).tolist()
            log_probs_Q = log_probs_QAV.gather(-1, targets_QA[..., None])[..., 0].sum(-1).tolist()
            asked = [(first + place, question) for place, text in enumerate(part) for question in text.questions]
            rows += [
                {"step": self.step, "text": text, "position": question.answer, "distance": question.distance}
                | {"candidates": question.candidates, "right": right, "log_prob": log_prob}
                for (text, question), right, log_prob in zip(asked, right_Q, log_probs_Q, strict=True)
            ]
        return rows


def train(job: RecallJob, out: Path) -> None:
    """Write to the folder `out`: predictions of every checkpoint, metrics of every step, and the receipt.

    Raises ValueError where the loss stops being finite, or names find no room in a text.
    """
    plan = job.recall
    trainer = RecallTrainer(job)
    texts = held_out(plan)
    predictions = trainer.score(texts)
    progress = Progress("step", plan.steps, 0)
    while trainer.step < plan.steps:
        trainer.advance()
        if trainer.step in plan.checkpoints:
            predictions += trainer.score(texts)
        progress.report(trainer.step, f"loss {trainer.metrics[-1]['loss']:.4f}  of answers {trainer.metrics[-1]['answer_loss']:.4f}")
    write_parquet(out / "predictions.parquet", pd.DataFrame(predictions).assign(seed=job.seed))
    write_lines(out / "metrics.jsonl", trainer.metrics)
    write_json(out / "receipt.json", _receipt(trainer))


def _receipt(trainer: RecallTrainer) -> dict[str, Any]:
    facts = {
        "parameters": {"total": count_parameters(trainer.model), "active": count_parameters(trainer.model, active=True)},
        "updates": trainer.step,
        "bytes": trainer.bytes,
        "peak_mib": round(peak_mib(trainer.device), 1),
    }
    return receipt(trainer.device, trainer.dtype, trainer.seconds, **facts)
