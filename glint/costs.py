"""What a model costs as its context grows: time, memory and the decode cache, on one CPU thread, with random weights.

Shape suffixes: N packed tokens, R rows.
"""

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glint.config.costs import CostsJob
from glint.device import peak_mib, prepare
from glint.files import write_json
from glint.model.decoder import Decoder
from glint.model.layout import Indexing, Layout
from glint.randomness import torch_generator
from glint.speed import WARM_UP, decode, pretrain_step, timed
from glint.tasks.tokenizer import SEP, VOCABULARY
from glint.train.batches import next_token_batch
from glint.train.progress import receipt

FIRST_BYTE = SEP + 1
SPEED = ("tokens_per_second", "efficiency")


def measure(job: CostsJob, out: Path, begin: Callable[[], object] | None = None) -> dict[str, Any]:
    """Write to `out` (JSON) what the model of `job` costs; return the receipt.

    `contexts`, a row each: `context`, `decode_seconds`, `prefill_seconds`, `train_seconds` (CPU seconds a token), `peak_mib`,
    `cache_bytes` (a row) and `cache_bytes_per_token` (its slope). `pretrain_step` and `decode`: tokens a CPU second at short lengths, and
    the efficiency. Each context is measured in a process of its own, because peak memory never falls in one; it calls `begin` first.
    Raises ValueError where such a process dies.
    """
    began = time.perf_counter()
    device, dtype = prepare(job.execution)
    precision, products = job.execution.precision, job.costs.products
    with tempfile.TemporaryDirectory() as folder:
        step = pretrain_step(precision, Path(folder), job.model, job.sequence, products)
    decoding = decode(precision, job.model, products)
    rows = [alone(job, context, begin) for context in job.costs.contexts]
    slopes = np.gradient([row["cache_bytes"] for row in rows], job.costs.contexts)
    contexts = [row | {"cache_bytes_per_token": float(slope)} for row, slope in zip(rows, slopes, strict=True)]
    speeds = {name: {key: found[key] for key in SPEED} for name, found in (("pretrain_step", step), ("decode", decoding))}
    write_json(out, {"contexts": contexts} | speeds)
    return receipt(device, dtype, time.perf_counter() - began)


def alone(job: CostsJob, context: int, begin: Callable[[], object] | None) -> dict[str, Any]:
    """Return what `at_context` does, from a fresh process."""
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=begin) as process:
            return process.submit(at_context, job, context).result()
    except BrokenProcessPool as error:
        raise ValueError(
            f"the process that measured a context of {context} tokens has died; costs.contexts may need more memory"
        ) from error


def at_context(job: CostsJob, context: int) -> dict[str, Any]:
    """Return the costs behind `context` tokens, in CPU seconds a token, and the peak of this process."""
    _, dtype = prepare(job.execution)
    plan = job.costs
    room = context + WARM_UP + plan.steps
    recipe = job.model.model_copy(update={"context": max(job.model.context, room)})
    model = Decoder(recipe, dtype).initialise(torch_generator(job.seed, "init")).freeze()
    shape = (context + 1 + plan.rows,)
    ids_N = torch.randint(FIRST_BYTE, VOCABULARY, shape, generator=torch_generator(job.seed, "costs"))
    text_N, next_R = ids_N[: context + 1], ids_N[context + 1 :]
    prefill = timed(lambda: _read(model, text_N[:-1]), warm_up=1, measured=plan.passes)
    decoding, kept = _decode(model, text_N[:-1], next_R, plan.steps)
    model.freeze("all")
    training = timed(lambda: _train(model, text_N), warm_up=1, measured=plan.passes)
    return {
        "context": context,
        "decode_seconds": decoding["cpu_seconds"] / plan.rows,
        "prefill_seconds": prefill["cpu_seconds"] / context,
        "train_seconds": training["cpu_seconds"] / context,
        "peak_mib": round(peak_mib(torch.device("cpu")), 1),
        "cache_bytes": kept,
    }


def _decode(model: Decoder, text_N: Tensor, next_R: Tensor, steps: int) -> tuple[dict[str, float], int]:
    """Return what a step behind the text costs, and the bytes kept of a row; the weights in the form for decoding go with the cache."""
    rows = len(next_R)
    cache = model.prefill([text_N.tolist()])[1].select(torch.zeros(rows, dtype=torch.int64))
    kept = cache_bytes(cache.layers) // rows
    return timed(lambda: model.step(next_R, cache), measured=steps), kept


@torch.no_grad()
def _read(model: Decoder, ids_N: Tensor) -> None:
    """Read one row and keep what decoding would go on from."""
    hidden = model(ids_N, Layout((len(ids_N),)), cache=[])
    model.logits(hidden.final_ND[-1:])


def _train(model: Decoder, ids_N: Tensor) -> None:
    """Predict each token of one row from those before it, and take the gradient of every parameter."""
    inputs_N, targets_N, layout = next_token_batch([ids_N.tolist()], model.dtype, model.recipe.context)
    model.zero_grad()
    hidden = model(inputs_N, layout, indexing=Indexing(False, []))
    (cross_entropy(model.logits(hidden.final_ND), targets_N) + hidden.divergence).backward()


def cache_bytes(layers: Any) -> int:
    """Return the bytes of all tensors in `layers`; those that share memory count once, with all of that memory."""
    storages = (tensor.untyped_storage() for tensor in _tensors(layers))
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _tensors(node: Any) -> Iterator[Tensor]:
    """Yield every tensor in lists, tuples and dataclasses, however deep."""
    if isinstance(node, Tensor):
        yield node
    elif dataclasses.is_dataclass(node):
        yield from _tensors([getattr(node, field.name) for field in dataclasses.fields(node)])
    elif isinstance(node, (list, tuple)):
        for part in node:
            yield from _tensors(part)
