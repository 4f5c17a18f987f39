"""How well a model knows expressions: byte by byte with the target given, and by running what it writes on its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pandas as pd
import torch

from glint.asking import Task, judged
from glint.generate import generate
from glint.model.decoder import Decoder
from glint.tasks.tokenizer import NEWLINE, encode
from glint.train.batches import next_token_batch
from glint.verify import Verifier

ROWS_AT_A_TIME = 64
"""Examples of one forward pass: few enough that the processor's caches hold what the layers hand on."""


@dataclass(frozen=True)
class Scored:
    """One example on which checkpoints are scored."""

    split: str
    block: int
    task: Task
    target: str
    """The expression, without the newline behind it."""

    @classmethod
    def all_of(cls, examples: pd.DataFrame) -> list[Self]:
        """Return the examples of `examples` that have cases, in order."""
        rows = examples[examples["split"] != "pretrain"].to_dict("records")
        columns = ("family", "identity", "argument", "prompt", "cases")
        return [
            cls(row["split"], row["block"], Task(index, *(row[name] for name in columns)), row["completion"].rstrip("\n"))
            for index, row in enumerate(rows)
        ]

    @property
    def labels(self) -> dict[str, Any]:
        """What names the example in a table of results."""
        return {"split": self.split, "family": self.task.family, "block": self.block, "identity": self.task.identity}


@torch.no_grad()
def predicted(model: Decoder, prompts: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[bool]]:
    """Return, for each token of each target, whether it is the likeliest one after the prompt and the target's tokens before it."""
    rows = [prompt + target for prompt, target in zip(prompts, targets, strict=True)]
    inputs_N, targets_N, layout = next_token_batch(rows, model.dtype, model.recipe.context)
    device = model.embedding.device
    final_ND = model(inputs_N.to(device), layout).final_ND
    starts = [end + 1 - length for end, length in zip(layout.last_tokens, layout.lengths, strict=True)]
    places = [
        start + len(prompt) - 1 + offset
        for start, prompt, target in zip(starts, prompts, targets, strict=True)
        for offset in range(len(target))
    ]
    index_N = torch.tensor(places)
    likeliest_N = model.logits(final_ND.index_select(0, index_N.to(device))).argmax(-1).cpu()
    hits_N = likeliest_N == targets_N.index_select(0, index_N)
    return [part.tolist() for part in hits_N.split([len(target) for target in targets])]


def score(model: Decoder, scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """Return one row an example: the target's bytes, and how many the model predicts when it is given those before."""
    rows = []
    for first in range(0, len(scored), ROWS_AT_A_TIME):
        asked = scored[first : first + ROWS_AT_A_TIME]
        hits = predicted(model, [encode(one.task.prompt) for one in asked], [encode(one.target, bos=False) for one in asked])
        rows += [one.labels | {"bytes": len(right), "right": sum(right)} for one, right in zip(asked, hits, strict=True)]
    return rows


def write_and_run(model: Decoder, scored: Sequence[Scored], max_new_tokens: int, verifier: Verifier) -> list[dict[str, Any]]:
    """Return one row an example: the line that the model writes greedily, up to its newline, and the verdict of running it."""
    prompts = [encode(one.task.prompt) for one in scored]
    answers = [answer for (answer,) in generate(model, prompts, None, max_new_tokens, is_complete=lambda _, ids: ids[-1] == NEWLINE)]
    verdicts = verifier.judge([one.task.candidate(answer.ids) for one, answer in zip(scored, answers, strict=True)])
    rows = []
    for one, answer, verdict in zip(scored, answers, verdicts, strict=True):
        ended = "newline" if answer.ended == "parses" else answer.ended
        rows.append(one.labels | {"target": one.target} | judged(answer.ids, ended, verdict))
    return rows
