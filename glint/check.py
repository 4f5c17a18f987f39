"""Is a model right before it is trained? `python -m glint.check [--model NAME_OR_CONFIG]`.

The checks come in order, since each takes the ones before it for granted: shapes, causality, loss at the start, gradients,
learning two examples by heart, saving and loading, decoding. All in float32, on the CPU.
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glint.config.errors import unknown
from glint.config.load import load
from glint.config.model import PRESETS, ModelRecipe
from glint.config.tree import resolve
from glint.model import checkpoint
from glint.model.decoder import Decoder, Hidden, count_parameters
from glint.model.layout import Indexing, Layout
from glint.randomness import torch_generator
from glint.tasks.tokenizer import encode
from glint.terminal import ending_with_its_reader
from glint.train.batches import IGNORED, next_token_batch
from glint.train.optimiser import adamw

LENGTHS = (11, 3, 24)
TOLERANCE = 1e-4
"""Of float32 sums in another order, relative to the largest logit."""
EXAMPLES = ("increment: return x + 1\n", "double: return x * 2\n")
"""They differ from their first byte on."""
MOST_STEPS = 300


class Failed(Exception):  # noqa: N818 - it is the answer of a check, no error of the program
    """A check that the model does not pass; the message is one sentence."""


def require(condition: bool, sentence: str) -> None:
    """Raise Failed with `sentence` unless the condition holds."""
    if not condition:
        raise Failed(sentence)


def fresh(recipe: ModelRecipe) -> Decoder:
    """Return the model as training starts it."""
    return Decoder(recipe).initialise(torch_generator(0, "check"))


def spread(recipe: ModelRecipe) -> Decoder:
    """Return a model all of whose parameters are drawn, so large that no symmetry or smallness of the start can hide a mistake."""
    model, generator = Decoder(recipe), torch_generator(0, "check", "spread")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.empty(parameter.shape).normal_(generator=generator)
            parameter.copy_(1 + 0.2 * noise if name.endswith("norm") else noise if parameter.dim() == 1 else noise * recipe.width**-0.5)
        for buffer in model.buffers():
            buffer.normal_(generator=generator)
    return model


def random_rows(recipe: ModelRecipe, lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    """Return rows of random ids, none longer than the context."""
    generator = torch_generator(0, "check", "rows")
    lengths = tuple(min(length, recipe.context) for length in lengths)
    return [torch.randint(recipe.vocabulary, (length,), generator=generator).tolist() for length in lengths]


def logits_of(model: Decoder, rows: list[list[int]]) -> list[Tensor]:
    """Return the logits [T, V] of each row, read side by side."""
    ids = torch.tensor([token for row in rows for token in row])
    with torch.no_grad():
        return list(model.logits(model(ids, Layout(tuple(map(len, rows)))).final_ND).split([len(row) for row in rows]))


def apart(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of two tensors of logits, relative to the largest logit."""
    return float((one - other).abs().max() / other.abs().max())


def check_shapes(recipe: ModelRecipe) -> str:
    """A forward pass gives finite float32 logits for every token, and shares of experts that sum to one."""
    model, rows = fresh(recipe), random_rows(recipe)
    tokens = sum(map(len, rows))
    hidden = model(torch.tensor([token for row in rows for token in row]), Layout(tuple(map(len, rows))))
    logits = model.logits(hidden.final_ND)
    require(hidden.final_ND.shape == (tokens, recipe.width), f"hidden states have the shape {tuple(hidden.final_ND.shape)}")
    require(logits.shape == (tokens, recipe.vocabulary), f"logits have the shape {tuple(logits.shape)}")
    require(logits.dtype == torch.float32 and bool(torch.isfinite(logits).all()), "logits are not all finite float32")
    require(bool(((hidden.usage_LE.sum(1) - 1).abs() < 1e-5).all()), "the experts' shares of a layer do not sum to one")
    return f"{count_parameters(model):,} parameters, {count_parameters(model, active=True):,} active"


def check_causality(recipe: ModelRecipe) -> str:
    """Other tokens behind a position change nothing at it or before it, nor in another row; the changed position itself changes."""
    model, rows = spread(recipe), random_rows(recipe)
    before = logits_of(model, rows)
    worst = 0.0
    for cut in range(len(rows[0])):
        changed = [(token + 1) % recipe.vocabulary for token in rows[0][cut:]]
        after = logits_of(model, [rows[0][:cut] + changed, *rows[1:]])
        kept = [apart(after[0][:cut], before[0][:cut])] if cut else []
        worst = max(worst, *kept, *(apart(other, known) for other, known in zip(after[1:], before[1:], strict=True)))
        require(
            worst < TOLERANCE, f"changing the tokens from position {cut} on changed logits before it, or in another row, by {worst:.1e}"
        )
        require(apart(after[0][cut], before[0][cut]) > TOLERANCE, f"another token at position {cut} changed nothing there")
    return f"largest change {worst:.0e}"


def start_loss(model: Decoder, rows: list[list[int]]) -> tuple[Tensor, Hidden]:
    """Return the mean cross-entropy of random targets, and the pass that gave it."""
    generator = torch_generator(0, "check", "targets")
    ids, layout = torch.tensor([token for row in rows for token in row]), Layout(tuple(map(len, rows)))
    hidden = model(ids, layout, indexing=Indexing(divergences=[]))
    targets = torch.randint(model.recipe.vocabulary, (len(hidden.final_ND),), generator=generator)
    return cross_entropy(model.logits(hidden.final_ND), targets), hidden


def check_loss(recipe: ModelRecipe) -> str:
    """A model that knows nothing spreads its guess: the loss starts near ln V."""
    with torch.no_grad():
        loss = float(start_loss(fresh(recipe), random_rows(recipe, (64, 64)))[0])
    expected = math.log(recipe.vocabulary)
    require(abs(loss - expected) < 0.05 * expected, f"the loss starts at {loss:.3f}, not near ln V = {expected:.3f}")
    return f"{loss:.3f}, ln V is {expected:.3f}"


def without_influence(recipe: ModelRecipe) -> set[str]:
    """Return the parameters that cannot have a gradient, by construction.

    All streams are equal when layer 0 reads them; the end is their plain mean, whatever shares the last layer wrote;
    one stream has one share, and a single chosen expert one weight, 1.
    """
    names: set[str] = set()
    if recipe.residual == "mixed":
        names |= {"blocks.0.read_logits", f"blocks.{recipe.layers - 1}.write_logits"}
        if recipe.streams == 1:
            names |= {f"blocks.{layer}.{kind}_logits" for layer in range(recipe.layers) for kind in ("read", "write")}
    if recipe.ffn == "moe" and recipe.top_k == 1:  # a sigmoid's weight is divided by the sum of those chosen: by itself
        names |= {f"blocks.{layer}.router" for layer in range(recipe.layers)}
    return names


def reached(recipe: ModelRecipe, name: str, gradient: Tensor, usage_LE: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the parts of a gradient that must not be zero: of experts one by one those that some token was sent to."""
    _, _, leaf = name.rpartition(".")
    layer = int(name.split(".")[1]) if name.startswith("blocks.") else None
    if layer is not None and leaf in ("up", "down") and recipe.feed_forward(layer) != "dense":
        used = [*usage_LE[layer - recipe.dense_layers].nonzero().flatten().tolist(), recipe.experts]
        yield from ((f"{name}[{expert}]", gradient[expert]) for expert in used)
    elif name not in without_influence(recipe):
        yield name, gradient


def check_gradients(recipe: ModelRecipe) -> str:
    """Every parameter that can have an influence has a finite gradient that is not zero."""
    model = fresh(recipe)
    loss, hidden = start_loss(model, random_rows(recipe, (64, 64, 32)))
    (loss + hidden.divergence).backward()
    for name, parameter in model.named_parameters():
        require(parameter.grad is not None, f"{name} has no gradient")
        assert parameter.grad is not None
        require(bool(torch.isfinite(parameter.grad).all()), f"the gradient of {name} is not finite")
        for part, gradient in reached(recipe, name, parameter.grad, hidden.usage_LE):
            require(bool(gradient.any()), f"the gradient of {part} is zero")
    skipped = without_influence(recipe)
    return f"{len(list(model.parameters()))} tensors" + (f", {len(skipped)} without influence" if skipped else "")


def check_overfit(recipe: ModelRecipe) -> str:
    """Two examples can be learned by heart: every byte but the first, which nothing announces, becomes the likeliest."""
    model = fresh(recipe)
    optimiser = adamw(model.parameters(), 0.03 * recipe.width**-0.5, (0.9, 0.95), 0.0, torch.device("cpu"))
    rows = [encode(text, eos=True)[: recipe.context] for text in EXAMPLES]
    inputs_N, targets_N, layout = next_token_batch(rows, model.dtype, recipe.context)
    targets_N[[0, len(rows[0]) - 1]] = IGNORED
    for step in range(MOST_STEPS):
        logits = model.logits(model(inputs_N, layout).final_ND)
        missed = int(((logits.argmax(-1) != targets_N) & (targets_N != IGNORED)).sum())
        if not missed:
            return f"after {step} steps"
        optimiser.zero_grad()
        cross_entropy(logits, targets_N, ignore_index=IGNORED).backward()
        optimiser.step()
    raise Failed(f"after {MOST_STEPS} steps on two examples {missed} bytes are still missed")


def check_saving(recipe: ModelRecipe) -> str:
    """What is saved and loaded gives the same logits, bit for bit."""
    model, rows = spread(recipe), random_rows(recipe)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(model, Path(folder))
        loaded = checkpoint.load([Path(folder)], torch.device("cpu"), torch.float32)
    same = all(torch.equal(one, other) for one, other in zip(logits_of(model, rows), logits_of(loaded, rows), strict=True))
    require(same, "a checkpoint that was saved and loaded gives other logits")
    return "the same bits"


def check_decoding(recipe: ModelRecipe) -> str:
    """Appending token by token gives the logits of the full forward pass at every position, for rows of unequal length and copies."""
    model, rows = spread(recipe), random_rows(recipe)
    steps = min(20, recipe.context - max(map(len, rows)))
    full = [[*row, *((3 * t + 7) % recipe.vocabulary for t in range(steps))] for row in rows]
    expected = logits_of(model, full)
    logits, cache = model.prefill(rows)
    copied = [0, *range(len(rows))]
    logits, cache = logits[copied], cache.select(torch.tensor(copied))
    worst = 0.0
    for t in range(steps + 1):
        for place, row in enumerate(copied):
            worst = max(worst, apart(logits[place], expected[row][len(rows[row]) - 1 + t]))
        require(worst < TOLERANCE, f"{t} tokens after the prompt, decoding and the full forward pass differ by {worst:.1e}")
        if t < steps:
            logits = model.step(torch.tensor([full[row][len(rows[row]) + t] for row in copied]), cache)
    return f"largest difference {worst:.0e}"


CHECKS: dict[str, Callable[[ModelRecipe], str]] = {
    "shapes": check_shapes,
    "causality": check_causality,
    "loss at the start": check_loss,
    "gradients": check_gradients,
    "overfit two examples": check_overfit,
    "save and load": check_saving,
    "decode = forward": check_decoding,
}
"""Each returns what it has seen, or raises Failed."""


def check(name: str, recipe: ModelRecipe) -> bool:
    """Print a line a check and return whether all have passed; the first that fails is the last."""
    for title, run in CHECKS.items():
        try:
            print(f"{name}: {title}: ok, {run(recipe)}", flush=True)
        except Failed as failed:
            print(f"{name}: {title}: FAILED, {failed}", flush=True)
            return False
    return True


def models(asked: str | None) -> dict[str, ModelRecipe]:
    """Return the models to check by name: a preset, those of a config file, or all presets; raises ValueError for anything else."""
    if asked is None:
        return PRESETS
    if asked in PRESETS:
        return {asked: PRESETS[asked]}
    if not Path(asked).exists():
        raise ValueError(unknown("model", asked, PRESETS) + ", or a config file")
    config = load(Path(asked))
    found: dict[ModelRecipe, str] = {}
    for study, plan in config.studies.items():
        for arm in plan.arms:
            found.setdefault(resolve(config, study, arm).model, f"{study}, {arm}")
    return {name: recipe for recipe, name in found.items()}


def main() -> None:
    """Check what the command line names; exit status 1 where a check fails."""
    parser = argparse.ArgumentParser(prog="python -m glint.check", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help=f"{', '.join(PRESETS)}, or a config file, of which every model is checked; else all presets")
    given = parser.parse_args()
    try:
        asked = models(given.model)
    except ValueError as error:
        sys.exit(f"error: {error}")
    torch.set_num_threads(1)
    with ending_with_its_reader():
        passed = [check(name, recipe) for name, recipe in asked.items()]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
