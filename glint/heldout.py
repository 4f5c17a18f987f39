"""The loss of checkpoints on examples that no model has trained on, source by source: the same ones for every seed and arm."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch.nn.functional import cross_entropy

from glint.config.heldout import ALL, HeldOutJob
from glint.device import peak_mib, prepare
from glint.files import read_parquet, write_parquet
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.tasks.corpus import token_rows
from glint.train.batches import IGNORED, next_token_batch
from glint.train.progress import receipt

ROWS_AT_A_TIME = 64
"""Examples of one forward pass: few enough that the processor's caches hold what the layers hand on."""


def measure(job: HeldOutJob, pretrained: Path, examples: Path, out: Path) -> dict[str, Any]:
    """Write to `out` (Parquet) what each checkpoint, a folder in `pretrained`, loses a token on the split; return the receipt.

    A row a checkpoint and source: `step`, `source` (a family, or `all`), `loss` (mean cross-entropy, nats a token), `tokens`, `examples`.
    Raises ValueError where a checkpoint is damaged, or the split is empty.
    """
    began = time.perf_counter()
    device, dtype = prepare(job.execution)
    table = read_parquet(examples)
    table = table[table["split"] == job.split]
    if table.empty:
        raise ValueError(f"{examples} has no examples in split {job.split!r}")
    rows = [row[: job.sequence] for row in token_rows(table)]
    found = []
    for name in job.checkpoints:
        model = checkpoint.load([pretrained / name], device, dtype).freeze()
        scores = by_source(table["family"].tolist(), rows, summed_losses(model, rows))
        found.append(scores.assign(step=int(name.rpartition("-")[2])))
        print(f"{name}: loss {scores['loss'].iloc[-1]:.4f}", flush=True)
    write_parquet(out, pd.concat(found)[["step", "source", "loss", "tokens", "examples"]])
    return receipt(device, dtype, time.perf_counter() - began, peak_mib=round(peak_mib(device), 1))


@torch.no_grad()
def summed_losses(model: Decoder, rows: Sequence[list[int]]) -> list[float]:
    """Return what pretraining would minimise on each row: its cross-entropy in nats, summed in float64 over all tokens but the first."""
    sums: list[float] = []
    device = model.embedding.device
    for first in range(0, len(rows), ROWS_AT_A_TIME):
        inputs_N, targets_N, layout = next_token_batch(rows[first : first + ROWS_AT_A_TIME], model.dtype, model.recipe.context)
        logits_NV = model.logits(model(inputs_N.to(device), layout).final_ND)
        losses_N = cross_entropy(logits_NV, targets_N.to(device), ignore_index=IGNORED, reduction="none").cpu().double()
        sums += [part.sum().item() for part in losses_N.split(list(layout.lengths))]
    return sums


def by_source(sources: Sequence[str], rows: Sequence[list[int]], sums: Sequence[float]) -> pd.DataFrame:
    """Return `source`, `loss`, `tokens` (predicted ones) and `examples` of each source, then of all together."""
    scored = pd.DataFrame({"source": sources, "nats": sums, "tokens": [len(row) - 1 for row in rows], "examples": 1})
    totals = pd.concat([scored, scored.assign(source=ALL)]).groupby("source", sort=False).sum().reset_index()
    return totals.assign(loss=totals["nats"] / totals["tokens"]).drop(columns="nats")
