r"""Try a model: `python -m glint.sample CHECKPOINT`, or with `--prompt TEXT`, or with `--family NAME` for tasks as evaluation asks them.

Without CHECKPOINT, or with the name of a run, it lists the checkpoints there are. A model's bytes are shown as they are decoded; those
that are no UTF-8, and all that a terminal would obey or hide, as `\xNN`.
"""

import argparse
import codecs
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from glint.asking import Task
from glint.checkpoints import checkpoints_below, described, is_checkpoint, layers
from glint.config.corpus import CorpusRecipe
from glint.config.errors import unknown
from glint.config.evaluation import EvaluationRecipe
from glint.config.execution import ExecutionRecipe
from glint.device import prepare
from glint.generate import Completion, draw_uniforms, generate
from glint.model import checkpoint
from glint.model.decoder import Decoder, count_parameters
from glint.randomness import torch_generator
from glint.tasks.corpus import draw_examples
from glint.tasks.families import FAMILIES
from glint.tasks.tokenizer import decode, encode
from glint.terminal import ending_with_its_reader
from glint.verify import Verdict, Verifier
from glint.verify.pool import VerifierError

RESULTS = Path("results")
AS_EVALUATED = EvaluationRecipe()
SPLIT = "dev"
"""Tasks that nothing is reported on are the ones to play with."""
HINT = r"# Complete this function.\n# Return True if x is even.\ndef is_even(x):\n"
COLDEST = 0.001
"""Below it, logits divided by the temperature could overflow, and sampling is greedy for all that can be seen."""
INTERRUPTED = 130
"""Exit code, 128 and the number of the signal, as shells have it."""


class Printable:
    r"""Bytes as text that a terminal cannot obey, piece by piece: what is no UTF-8, no newline, no tab and not printable becomes `\xNN`."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def text(self, piece: bytes, *, last: bool = False) -> str:
        """Return what can be shown by now; a character may wait for its other bytes unless this is the `last` piece."""
        return "".join(map(self._shown, self._decoder.decode(piece, last)))

    @staticmethod
    def _shown(character: str) -> str:
        return character if character.isprintable() or character in "\n\t" else "".join(f"\\x{byte:02x}" for byte in character.encode())


def stream(
    model: Decoder,
    prompt: str,
    uniforms: torch.Tensor | None,
    max_new_tokens: int,
    write: Callable[[str], object],
    *,
    temperature: float = 1.0,
    is_complete: Callable[[list[int]], bool] = lambda ids: False,  # noqa: ARG005
) -> Completion:
    """Return the completion of `prompt` as `generate` gives it, having written its text byte by byte; greedy where `uniforms` is None.

    `uniforms` is [1, max_new_tokens]. The stop rule is asked after each token, and so it can also show it.
    """
    shown = Printable()

    def seen(_: int, ids: list[int]) -> bool:
        write(shown.text(decode(ids[-1:])))
        return is_complete(ids)

    numbers = None if uniforms is None else [uniforms]
    ((completion,),) = generate(model, [encode(prompt)], numbers, max_new_tokens, temperature=temperature, is_complete=seen)
    write(shown.text(b"", last=True))
    return completion


def tasks_of(family: str, count: int) -> list[Task]:
    """Return the first dev tasks of a family, those of every run that keeps the default `evaluation_seed`; ValueError for no family."""
    if family not in FAMILIES:
        raise ValueError(unknown("family", family, FAMILIES))
    corpus = CorpusRecipe(
        families=(family,),
        pretrain_examples=1,
        rl_tasks_per_family=1,
        dev_tasks_per_family=count,
        confirm_tasks_per_family=1,
        final_tasks_per_family=1,
    )
    examples = draw_examples(corpus, seed=0)
    columns = ["family", "identity", "argument", "prompt", "cases"]
    rows = examples.loc[examples["split"] == SPLIT, columns].itertuples(index=False, name=None)
    return [Task(index, *row) for index, row in enumerate(rows)]


class Session:
    """A loaded model, and how it is asked."""

    def __init__(self, model: Decoder, given: argparse.Namespace) -> None:
        self.model, self.given = model, given

    def continue_prompt(self, prompt: str) -> None:
        """Print the prompt and its completions; raises ValueError, before it prints or draws, where the context does not hold them."""
        room = max(1, self.model.recipe.context - len(encode(prompt)) + 1)
        longest = self.given.max_new_tokens or min(AS_EVALUATED.max_new_tokens, room)
        self._check_length(prompt, longest)
        for number, uniforms in enumerate(self._uniforms(self.given.count, longest, "sample", prompt)):
            if self.given.count > 1:
                write(f"--- {number + 1}\n")
            write(Printable().text(prompt.encode(), last=True))
            completion = stream(self.model, prompt, uniforms, longest, write, temperature=self.given.temperature)
            write(_end(completion))

    def ask(self, family: str, verifier: Verifier) -> None:
        """Print tasks of a family with the answers and their verdicts."""
        longest = self.given.max_new_tokens or AS_EVALUATED.max_new_tokens
        passed = 0
        for task in tasks_of(family, self.given.count):
            self._check_length(task.prompt, longest)
            (uniforms,) = self._uniforms(1, longest, "evaluate", SPLIT, task.identity)
            write(task.prompt)
            completion = stream(
                self.model, task.prompt, uniforms, longest, write, temperature=self.given.temperature, is_complete=task.is_complete
            )
            (verdict,) = verifier.judge([task.candidate(completion.ids)])
            passed += verdict.verdict == "passed"
            write(f"{_end(completion)}{_told(verdict)}\n\n")
        write(f"{passed} of {self.given.count} passed\n")

    def _check_length(self, prompt: str, longest: int) -> None:
        tokens, context = len(encode(prompt)), self.model.recipe.context
        said = f"a prompt of {tokens} tokens (its start token included)"
        if tokens > context:
            raise ValueError(f"{said} exceeds the model's context of {context}")
        if tokens + longest - 1 > context:  # the last new token is not read
            raise ValueError(f"{said} and --max-new-tokens {longest} exceed the model's context of {context}")

    def _uniforms(self, copies: int, tokens: int, *names: str) -> Iterator[torch.Tensor | None]:
        """Yield the random numbers of each completion, [1, tokens], from the seed and the names; None where it is greedy."""
        if self.given.greedy:
            yield from [None] * copies
        else:
            yield from draw_uniforms(copies, tokens, torch_generator(self.given.seed, *names)).split(1)


def write(text: str) -> None:
    """Write to the terminal at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _end(completion: Completion) -> str:
    """Return what stands behind a completion: a new line if it lacks one, and why it ended where its text does not show it."""
    cut = f"[cut after {len(completion.ids)} tokens]\n" if completion.ended == "length" else ""
    return ("" if decode(completion.ids).endswith(b"\n") else "\n") + cut


def _told(verdict: Verdict) -> str:
    text = f"{verdict.verdict}, {verdict.passed} of {verdict.total} hidden cases" if verdict.verdict != "invalid" else "invalid"
    return Printable().text((f"=> {text}: {verdict.reason}" if verdict.reason else f"=> {text}").encode(), last=True)


def place(given: str | None) -> Path:
    """Return the folder that is meant: a path, or a run's below `results`, or all results; raises ValueError where there is none."""
    if given is None:
        return RESULTS
    for folder in (Path(given), RESULTS / given):
        if folder.is_dir():
            return folder
    raise ValueError(f"{given} is neither a checkpoint, nor a folder with some, nor a run in {RESULTS}/")


def listing(folder: Path) -> list[str]:
    """Return a line for each checkpoint below `folder`, with what it belongs to; raises ValueError where there is none."""
    found = checkpoints_below(folder) if folder.is_dir() else []
    if not found:
        raise ValueError(f"there are no checkpoints in {folder}/; `make quick` trains some, in results/quick")
    runs = {parent for path in found for parent in path.parents if (parent / "manifest.json").exists()}
    known = {training: says for run in runs for training, says in described(run).items()}
    lines = (f"{path}  {known.get(path.parent.parent, '')}".rstrip() for path in found)
    return [Printable().text(line.encode(errors="surrogateescape"), last=True) for line in lines]


def load(folder: Path, base: Path | None) -> Decoder:
    """Return the model of a checkpoint, ready to decode; raises ValueError where a file is missing, damaged or of other weights."""
    device, dtype = prepare(ExecutionRecipe())
    return checkpoint.load(layers(folder, base), device, dtype).freeze()


def talk(session: Session) -> None:
    """Continue one prompt after the other, until the input ends."""
    asking = sys.stdin.isatty()
    if asking:
        print(rf"A prompt a line, \n for a new line in it; Ctrl-D ends. The corpus has prompts like this one: {HINT}", file=sys.stderr)
    while True:
        try:
            line = input("> " if asking else "")
        except EOFError:
            return
        try:
            session.continue_prompt(_with_lines(line))
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)


def _with_lines(prompt: str) -> str:
    return prompt.replace(r"\n", "\n")


def run(given: argparse.Namespace) -> None:
    """Do what the command line asks; raises ValueError for what cannot be done."""
    _check(given)
    folder = place(given.checkpoint)
    if not is_checkpoint(folder):
        print("\n".join(listing(folder)))
        return
    model = load(folder, given.base)
    print(f"{folder}: {count_parameters(model):,} parameters", file=sys.stderr)
    session = Session(model, given)
    if given.family is not None:
        with Verifier(workers=1) as verifier:
            session.ask(given.family, verifier)
    elif given.prompt is not None:
        session.continue_prompt(_with_lines(given.prompt))
    else:
        talk(session)


def _check(given: argparse.Namespace) -> None:
    for name, least in (("count", 1), ("max_new_tokens", 1), ("seed", 0)):
        value = getattr(given, name)
        if value is not None and value < least:
            raise ValueError(f"--{name.replace('_', '-')} {value} is less than {least}")
    if not COLDEST <= given.temperature < float("inf"):
        raise ValueError(f"--temperature {given.temperature:g} must be {COLDEST} or more; --greedy takes the likeliest byte each time")
    if given.greedy and given.count > 1 and given.family is None:
        raise ValueError(f"--count {given.count} with --greedy would show the same completion {given.count} times; leave one out")
    if given.family is not None and given.family not in FAMILIES:
        raise ValueError(unknown("family", given.family, FAMILIES))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m glint.sample", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint", nargs="?", help="folder of a checkpoint; else a run, or nothing, to list those there are")
    parser.add_argument("--base", type=Path, help="checkpoint that one of RL is laid over, where it is not found by its hash")
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--prompt", help=r"continue this text, \n for a new line; else prompts are read line by line")
    asked.add_argument("--family", help=f"ask tasks of a family, and judge the answers: {', '.join(FAMILIES)}")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--greedy", action="store_true", help="take the likeliest byte each time")
    choice.add_argument("--temperature", type=float, default=AS_EVALUATED.temperature, help=f"of sampling ({AS_EVALUATED.temperature})")
    parser.add_argument("--seed", type=int, default=0, help="of sampling (0)")
    parser.add_argument("--max-new-tokens", type=int, help=f"longest completion ({AS_EVALUATED.max_new_tokens}, or what the context holds)")
    parser.add_argument("--count", type=int, default=1, help="completions of a prompt, or tasks of the family (1)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Try what the command line names; Ctrl-C, the end of the input and a reader that has gone end it without a word."""
    given = _parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        with ending_with_its_reader():
            run(given)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (ValueError, OSError, VerifierError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
