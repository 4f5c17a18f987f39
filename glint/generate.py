"""Sampling: prompts are read once, copied, and continued byte by byte; finished rows leave the batch."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glint.model.decoder import Cache, Decoder
from glint.tasks.tokenizer import BOS, EOS, PAD, SEP, VOCABULARY

NEVER_SAMPLED = (PAD, BOS, SEP)
ROW_BLOCK = 4
"""The batch shrinks to multiples of this, since each new batch size costs kernels of its own."""

IsComplete = Callable[[int, list[int]], bool]
"""Given the index of a prompt and the ids sampled so far: whether the completion is finished."""


@dataclass
class Completion:
    """What was sampled for one row, the token that ended it included."""

    ids: list[int]
    ended: str
    """`eos`, `parses` (the stop rule said so) or `length`."""


def never_complete(prompt: int, ids: list[int]) -> bool:  # noqa: ARG001
    """Leave the end of a completion to the model's own eos."""
    return False


def draw_uniforms(copies: int, tokens: int, generator: torch.Generator) -> Tensor:
    """Return the uniform numbers [copies, tokens] that decide the samples of one prompt."""
    return torch.rand(copies, tokens, generator=generator, dtype=torch.float64)


def mask_control(logits_RV: Tensor) -> Tensor:
    """Return logits in which pad, bos and sep cannot be sampled, nor ids beyond the bytes."""
    masked_RV = logits_RV.index_fill(-1, torch.tensor(NEVER_SAMPLED, device=logits_RV.device), float("-inf"))
    masked_RV[..., VOCABULARY:] = float("-inf")
    return masked_RV


def choose(logits_RV: Tensor, temperature: float, uniforms_R: Tensor | None) -> Tensor:
    """Return the next ids [R]: the most likely ones, or those at which the cumulative probability passes the uniform number.

    Raises ValueError where the model has diverged.
    """
    if not math.isfinite(logits_RV.abs().amax()):
        raise ValueError("the model's logits are not finite, so its training has diverged; lower the learning rate")
    logits_RV = mask_control(logits_RV)
    if uniforms_R is None:
        return logits_RV.argmax(-1)
    cumulative_RV = torch.softmax(logits_RV.cpu().double() / temperature, -1).cumsum(-1)
    below = cumulative_RV <= uniforms_R[:, None] * cumulative_RV[:, -1:]
    return below.sum(-1).clamp(max=logits_RV.shape[-1] - 1).to(logits_RV.device)


def generate(
    model: Decoder,
    prompts: Sequence[list[int]],
    uniforms: Sequence[Tensor] | None,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    is_complete: IsComplete = never_complete,
) -> list[list[Completion]]:
    """Return the completions of each prompt.

    Sampled: `uniforms[i]` is [copies, max_new_tokens] for prompt i, so that a sample does not depend on what else is in the batch.
    Greedy, one completion a prompt: `uniforms` is None.
    Raises ValueError where prompt and completion may exceed the context.
    """
    longest = max(map(len, prompts))
    if longest + max_new_tokens - 1 > model.recipe.context:  # the last new token is not read
        raise ValueError(f"a prompt of {longest} tokens and max_new_tokens {max_new_tokens} exceed model.context {model.recipe.context}")
    copies = 1 if uniforms is None else len(uniforms[0])
    logits_RV, cache = model.prefill(list(prompts))
    repeat = torch.arange(len(prompts), device=logits_RV.device).repeat_interleave(copies)
    numbers = None if uniforms is None else torch.cat(list(uniforms))
    completions = [Completion([], "length") for _ in range(len(prompts) * copies)]
    _continue(model, logits_RV[repeat], cache.select(repeat), numbers, completions, copies, max_new_tokens, temperature, is_complete)
    return [completions[first : first + copies] for first in range(0, len(completions), copies)]


def _continue(
    model: Decoder,
    logits_RV: Tensor,
    cache: Cache,
    numbers: Tensor | None,
    completions: list[Completion],
    copies: int,
    max_new_tokens: int,
    temperature: float,
    is_complete: IsComplete,
) -> None:
    """Extend `completions` in place until each has ended."""
    rows = list(range(len(completions)))
    ended: set[int] = set()
    for step in range(max_new_tokens):
        ids_R = choose(logits_RV, temperature, None if numbers is None else numbers[rows, step])
        for row, token in zip(rows, ids_R.tolist(), strict=True):
            if row not in ended:
                _append(completions[row], token, row // copies, is_complete)
                ended.update([row] if completions[row].ended != "length" else [])
        if len(ended) == len(completions) or step + 1 == max_new_tokens:
            return
        kept = _kept(rows, ended)
        if len(kept) < len(rows):
            index = torch.tensor(kept, device=ids_R.device)
            cache, ids_R, rows = cache.select(index), ids_R[index], [rows[place] for place in kept]
        logits_RV = model.step(ids_R, cache)


def _append(completion: Completion, token: int, prompt: int, is_complete: IsComplete) -> None:
    completion.ids.append(token)
    if token == EOS:
        completion.ended = "eos"
    elif is_complete(prompt, completion.ids):
        completion.ended = "parses"


def _kept(rows: list[int], ended: set[int]) -> list[int]:
    """Return the places in the batch to keep: all running rows, and finished ones up to a multiple of ROW_BLOCK."""
    running = [place for place, row in enumerate(rows) if row not in ended]
    wanted = -(-len(running) // ROW_BLOCK) * ROW_BLOCK
    if wanted > 0.75 * len(rows):
        return list(range(len(rows)))
    finished = [place for place, row in enumerate(rows) if row in ended]
    return sorted(running + finished[: wanted - len(running)])
