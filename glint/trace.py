"""One RL run under a magnifier: what the policies before and after it think of the same texts, byte by byte.

Of every family one task is shown, that with the lowest identity of its split, so that pages can show the same one everywhere.

Shapes: N tokens of all rows, packed; T positions of a text; V vocabulary; K experts a token is sent to.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from glint.asking import Task, read_tasks
from glint.config.evaluation import EvaluateJob
from glint.config.trace import TraceJob
from glint.device import peak_mib, prepare
from glint.evaluate import Judge, answer
from glint.files import read_parquet, write_parquet
from glint.generate import mask_control
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.model.layout import Layout
from glint.model.mechanism import Weights
from glint.model.moe import Mixture
from glint.model.ranking import first_largest
from glint.randomness import torch_generator
from glint.tasks.tokenizer import CONTROL_IDS, EOS, encode
from glint.train.progress import receipt
from glint.verify import Verifier

LIKELIEST = 5
"""Candidates for the next byte that are kept a position."""
UNTRAINED = "step-0000"
"""Name of the checkpoint that random weights stand for."""
NEXT_BYTES = ["family", "identity", "answer", "position", "given", "given_probability", "policy", "rank", "token", "probability"]
ROUTING = ["family", "layer", "position", "token", "choice", "expert", "weight"]


@dataclass(frozen=True)
class Text:
    """A prompt and the completion that one of the policies wrote greedily."""

    task: Task
    answer: str
    """Who wrote it: `before` or `after`."""
    prompt: list[int]
    completion: list[int]

    @property
    def read(self) -> list[int]:
        """The tokens that a policy reads to write the completion: all but its last one, which nothing follows."""
        return [*self.prompt, *self.completion[:-1]]


@dataclass(frozen=True)
class Reading:
    """What one policy made of some texts, text by text."""

    probabilities: list[Tensor]
    """Of the next token at each position of the completion, float64 [T, V]."""
    routes: list[dict[int, tuple[Tensor, Tensor]]]
    """By layer that routes: weights and experts of every token read, [T, K] each."""


class Watched(Mixture):
    """A mixture of experts that keeps where it has sent the tokens."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__(mixture.recipe)
        self.mixture = mixture
        self.routes: list[tuple[Tensor, Tensor]] = []

    def choose(self, x_ND: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """Return what the mixture itself chooses, and keep it."""
        self.routes.append(self.mixture.choose(x_ND, weights))
        return self.routes[-1]


def trace(
    job: TraceJob, policies: Mapping[str, tuple[Path, ...]], completions: Mapping[str, Path], examples: Path, out: Path
) -> dict[str, Any]:
    """Write `next_bytes.parquet`, `routing.parquet` and `random.parquet` to the folder `out`; return the receipt.

    `policies` are the checkpoints (base folder, then what RL has trained) and `completions` their judged answers, by `before` and `after`.
    Raises ValueError where a checkpoint is damaged, or an answer to a shown task is missing.
    """
    began = time.perf_counter()
    device, dtype = prepare(job.execution)
    tasks = shown_tasks(examples, job.split, job.tasks_per_family)
    texts = [text for name, path in completions.items() for text in read_texts(tasks, name, path, job.evaluation.stops[0])]
    readings = {name: read(checkpoint.load(folders, device, dtype).freeze(), texts) for name, folders in policies.items()}
    write_parquet(out / "next_bytes.parquet", pd.DataFrame(next_byte_rows(texts, readings), columns=NEXT_BYTES))
    write_parquet(out / "routing.parquet", pd.DataFrame(routing_rows(texts, "after", readings["after"]), columns=ROUTING))
    untrained = random_model(job, dtype).to(device).freeze()
    first_words = random_rows(job, untrained, shown_tasks(examples, "dev"))
    write_parquet(out / "random.parquet", pd.DataFrame(first_words))
    facts = {"completions": len(first_words), "peak_mib": round(peak_mib(device), 1)}
    return receipt(device, dtype, time.perf_counter() - began, **facts)


def shown_tasks(examples: Path, split: str, each: int | None = None) -> list[Task]:
    """Return of every family of a split the task with the lowest identity, among the first `each` (None: all)."""
    first: dict[str, Task] = {}
    for task in sorted(read_tasks(examples, split, (), each), key=lambda task: task.identity):
        first.setdefault(task.family, task)
    if not first:
        raise ValueError(f"{examples} has no tasks in split {split!r}")
    return sorted(first.values(), key=lambda task: task.index)


def read_texts(tasks: Iterable[Task], name: str, completions: Path, stop: str) -> Iterator[Text]:
    """Yield what the checkpoint behind the file `completions` wrote greedily for each task, as the stop rule left it.

    An answer whose tokens its text does not tell is left out, and the log says so.
    """
    table = read_parquet(completions)
    greedy = table[(table["mode"] == "greedy") & (table["stop"] == stop)].set_index("identity")
    for task in tasks:
        if task.identity not in greedy.index:
            raise ValueError(f"{completions} has no greedy completion of {task.identity}")
        row: Any = greedy.loc[task.identity]
        tokens = token_ids(row["completion"], row["ended"], row["tokens"])
        if tokens is None:
            print(
                f"{task.identity}, {name} RL: left out, its text does not tell its {row['tokens']} tokens: {row['completion']!r}",
                flush=True,
            )
        else:
            yield Text(task, name, encode(task.prompt), tokens)


def token_ids(completion: str, ended: str, tokens: int) -> list[int] | None:
    r"""Return the token ids behind the columns of a judged answer.

    Bytes that are no UTF-8 stand in the text as `\xNN`; the number of tokens says whether such a text is meant, or the model wrote these
    four characters. None where it wrote both in one answer, so that neither reading has as many tokens.
    """
    end = [EOS] * (ended == "eos")
    written = completion.encode()
    escaped = re.sub(rb"\\x([89a-f][0-9a-f])", lambda match: bytes.fromhex(match[1].decode()), written)
    for content in (written, escaped):
        if len(content) + len(end) == tokens:
            return [CONTROL_IDS + byte for byte in content] + end
    return None


@torch.no_grad()
def read(model: Decoder, texts: list[Text]) -> Reading:
    """Return what `model` makes of `texts`: the probabilities from which sampling at temperature 1 would draw, and its routes."""
    if not texts:
        return Reading([], [])
    watched = watch(model)
    layout = Layout(tuple(len(text.read) for text in texts))
    ids_N = torch.tensor([token for text in texts for token in text.read], device=model.embedding.device)
    logits_NV = mask_control(model.logits(model(ids_N, layout).final_ND))
    probabilities_NV = torch.softmax(logits_NV.cpu().double(), -1)
    own = zip(texts, probabilities_NV.split(list(layout.lengths)), strict=True)
    return Reading([rows_TV[len(text.prompt) - 1 :] for text, rows_TV in own], _by_text(watched, layout))


def watch(model: Decoder) -> dict[int, Watched]:
    """Let every mixture of `model` keep its routes from now on; return them by layer."""
    watched: dict[int, Watched] = {}
    for layer, block in model.layers():
        if isinstance(block.feed_forward, Mixture):
            block.feed_forward = watched[layer] = Watched(block.feed_forward)
    return watched


def _by_text(watched: dict[int, Watched], layout: Layout) -> list[dict[int, tuple[Tensor, Tensor]]]:
    """Return the routes of the one pass that `watched` has seen, text by text."""
    routes: list[dict[int, tuple[Tensor, Tensor]]] = [{} for _ in layout.lengths]
    for layer, mixture in watched.items():
        ((weights_NK, experts_NK),) = mixture.routes
        parts = zip(weights_NK.split(list(layout.lengths)), experts_NK.split(list(layout.lengths)), strict=True)
        for own, (weights_TK, experts_TK) in zip(routes, parts, strict=True):
            own[layer] = weights_TK.cpu().float(), experts_TK.cpu()
    return routes


def next_byte_rows(texts: list[Text], readings: Mapping[str, Reading]) -> Iterator[tuple[Any, ...]]:
    """Yield a row, in the order of `NEXT_BYTES`, a text, position, policy and rank; of equally likely tokens the lowest id first."""
    for index, text in enumerate(texts):
        for position, given in enumerate(text.completion):
            for policy, reading in readings.items():
                probabilities_V = reading.probabilities[index][position]
                place = (text.task.family, text.task.identity, text.answer, position, given, probabilities_V[given].item(), policy)
                for rank, token in enumerate(first_largest(probabilities_V, LIKELIEST).tolist()):
                    yield (*place, rank, token, probabilities_V[token].item())


def routing_rows(texts: list[Text], policy: str, reading: Reading) -> Iterator[tuple[Any, ...]]:
    """Yield a row, its values in the order of `ROUTING`, a layer, position and choice of the texts that `policy` itself wrote."""
    for text, routes in zip(texts, reading.routes, strict=True):
        if text.answer != policy:
            continue
        for layer, (weights_TK, experts_TK) in routes.items():
            for position, token in enumerate(text.read):
                for choice, expert in enumerate(experts_TK[position].tolist()):
                    yield text.task.family, layer, position, token, choice, expert, weights_TK[position, choice].item()


def random_model(job: TraceJob, dtype: torch.dtype) -> Decoder:
    """Return the weights with which the pretraining behind the run began."""
    seed = job.seed if job.start_seed is None else job.start_seed
    return Decoder(job.model, dtype).initialise(torch_generator(seed, "init"))


def random_rows(job: TraceJob, untrained: Decoder, tasks: list[Task]) -> list[dict[str, Any]]:
    """Return the judged greedy completions of dev `tasks` by the weights before any training, with the columns of an evaluation."""
    seed = job.seed if job.start_seed is None else job.start_seed
    asked = EvaluateJob(evaluation=job.evaluation, execution=job.execution, split="dev", sampled=False, seed=seed)
    answers = answer(untrained, tasks, asked, sampled=False)
    with Verifier() as verifier:
        rows = Judge(verifier, job.evaluation.property_inputs).rows(tasks, answers, asked)
    return [{"checkpoint": UNTRAINED, "split": asked.split, "mode": "greedy", **row} for row in rows]
