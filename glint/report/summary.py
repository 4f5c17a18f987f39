"""A summary of one study for those who post it: question, change, result, seeds, verdict, one limit, how to run it again."""

from math import isnan

from glint.config.base import digest
from glint.config.tree import Config
from glint.report.findings import Comparison, Finding
from glint.report.tables import change

MOST_WORDS = 120
LONGEST_QUESTION = 25
"""Words of a question beyond which it is cut: the whole one stands in the report."""
LONGEST_CHANGE = 16
"""Words that what was changed may take at most."""


def summarise(config: Config, finding: Finding, command: str) -> str:
    """Return at most `MOST_WORDS` words of Markdown, as many comparisons as there is room for; `command` runs the study again.

    A command that is longer by itself is given whole.
    """
    candidates = (_text(config, finding, command, most) for most in range(len(finding.comparisons), -1, -1))
    return next((text for text in candidates if len(text.split()) <= MOST_WORDS), _text(config, finding, command, 0))


def _text(config: Config, finding: Finding, command: str, most: int) -> str:
    """Return the summary with the results of `most` comparisons, those first that are decided."""
    ordered = [*finding.decided, *(one for one in finding.comparisons if one.side == "undecided")]
    left_out = len(ordered) - most
    lines = [f"- {_result(finding, one)}" for one in ordered[:most]]
    return "\n".join(
        [
            f"**{_first_words(finding.plan.question, LONGEST_QUESTION)}**",
            "",
            f"Changed: {_first_words(_changed(config, finding), LONGEST_CHANGE)}",
            "",
            f"Result, {finding.certainty}; {_first_words(finding.measured, 10)}:",
            "",
            *lines,
            *([f"- {left_out} more in the report"] if left_out else []),
            "",
            f"Verdict: {finding.outcome}. Limit: {finding.limit}",
            "",
            f"Again: `{command}` (config {digest(config)})",
            "",
        ]
    )


def _result(finding: Finding, one: Comparison) -> str:
    verdict = "" if finding.primary is one or not one.verdict else f": {one.verdict}"
    levels = f" ({one.levels})" if finding.primary is one else ""
    ends = f"{',' if isnan(one.low) else ''} {finding.ends(one)}"
    return f"{one.label} {finding.difference(one)}{ends}{levels}{verdict}"


def _changed(config: Config, finding: Finding) -> str:
    """Return what each arm but the base changes: one value, or where there are several the reason that the config gives."""
    plan = finding.plan
    others = ((name, plan.arms[name].several_changes) for name in plan.in_order() if name != plan.base)
    parts = [f"{name} ({why or change(config, finding.study, name)})" for name, why in others]
    return ", ".join(parts) or "nothing: there is one arm"


def _first_words(text: str, most: int) -> str:
    words = text.split()
    return " ".join(words) if len(words) <= most else " ".join(words[:most]) + " …"
