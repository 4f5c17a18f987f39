"""Judge files by hand: `python -m glint.verify FILE --family even [--json] [--explain]`.

Each file holds one function of any name that takes the family's argument. Exit codes: 0 passed, 1 failed, 2 invalid, 3 error (also a
file that cannot be read or an unknown family); of several files, the highest. Several files are one line of JSON each.
"""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from glint.config.errors import unknown
from glint.randomness import rng
from glint.tasks.corpus import draw_cases
from glint.tasks.families import FAMILIES, Family
from glint.verify import policy
from glint.verify.judge import Candidate, Case, Verdict, Verifier, property_cases
from glint.verify.pool import VerifierError

REWARD_CASES = 3
PROPERTY_CASES = 128
EXIT_CODES = {"passed": 0, "failed": 1, "invalid": 2, "error": 3}


@dataclass(frozen=True)
class Judgement:
    """Both judges' verdicts on one program."""

    candidate: Candidate
    reward: Verdict
    suite: Verdict

    def record(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        suite = "passed" if self.suite.verdict == "passed" else "failed"
        seconds = round(self.reward.seconds + self.suite.seconds, 6)
        return asdict(self.reward) | {"property": suite, "seconds": seconds}

    def explanation(self) -> str:
        """Return the rule that rejected the program and where, or the first case that each judge found wrong."""
        if self.reward.verdict == "invalid":
            return _rejection(self.candidate) or f"  {self.reward.reason}"
        found = {"reward": self.reward.reason, "property": self.suite.reason}
        return "\n".join(f"  {judge}: {reason or 'every case passed'}" for judge, reason in found.items())


def _rejection(candidate: Candidate) -> str:
    """Return the rule that rejects `candidate`, and the line with a mark below the place; empty if only the compiler does."""
    try:
        policy.admit(candidate.source, candidate.function, candidate.argument)
    except policy.RejectedError as error:
        if not error.line:
            return f"  {error}"
        line = [*candidate.source.decode().splitlines(), ""][error.line - 1]
        return f"  {error}\n    {line}\n    {' ' * (error.column - 1)}^"
    return ""


class _Parser(argparse.ArgumentParser):
    """Leaves exit code 2 to invalid programs."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.refuse(message)

    def refuse(self, message: str) -> NoReturn:
        """End with one sentence."""
        self.exit(EXIT_CODES["error"], f"error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the files named on the command line, print, and return the exit code."""
    parser = _Parser(prog="python -m glint.verify", description="Judge files that hold one function each.")
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a file with one function, of any name")
    parser.add_argument("--family", required=True, metavar=f"{{{','.join(FAMILIES)}}}", help="what the function should do")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--explain", action="store_true", help="say which rule rejected a program and where, or which case it failed")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if options.family not in FAMILIES:
        parser.refuse(unknown("family", options.family, FAMILIES))
    try:
        sources = [path.read_bytes() for path in options.files]
    except OSError as error:
        parser.refuse(str(error))
    judgements = judge_sources(sources, FAMILIES[options.family])
    as_json = options.json or len(judgements) > 1
    for path, judgement in zip(options.files, judgements, strict=True):
        print(_line(path, judgement, as_json, options.explain))
    return max(EXIT_CODES[judgement.reward.verdict] for judgement in judgements)


def judge_sources(sources: Sequence[bytes], family: Family) -> list[Judgement]:
    """Return the verdicts of the reward cases and of the property suite on each source; `error` for all if the sandbox fails."""
    rewarded = [_candidate(source, family) for source in sources]
    suites = [replace(candidate, cases=property_cases(family.name, candidate.function, PROPERTY_CASES)) for candidate in rewarded]
    both = [*rewarded, *suites]
    try:
        with Verifier() as verifier:
            verdicts = verifier.judge(both)
    except VerifierError as error:
        verdicts = [Verdict("error", str(error), 0, len(candidate.cases), 0.0) for candidate in both]
    return [Judgement(*parts) for parts in zip(rewarded, verdicts[: len(sources)], verdicts[len(sources) :], strict=True)]


def _candidate(source: bytes, family: Family) -> Candidate:
    """Return the candidate under the name that the file gives its function; where there is none, any name will do to reject it."""
    try:
        function = policy.parse_definition(source).name
    except policy.RejectedError:
        function = family.name
    cases = draw_cases(family, rng(0, "verify", family.name, function), REWARD_CASES)
    return Candidate(source, function, family.argument, tuple(Case(**case) for case in cases))


def _line(path: Path, judgement: Judgement, as_json: bool, explain: bool) -> str:
    record = judgement.record()
    if as_json:
        return json.dumps(record | ({"explanation": judgement.explanation()} if explain else {}))
    text = "{verdict}, {passed} of {total} reward cases, property {property}, {seconds:.3f} s".format(**record)
    details = judgement.explanation() if explain else f"  {judgement.reward.reason}"
    return f"{path}: {text}\n{details}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
