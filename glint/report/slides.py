"""The slides: the study as a lesson, one self-contained HTML file, every number of which comes from a result file or the config."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glint.config.base import digest
from glint.config.model import SPARSE_EVERY
from glint.config.tree import Config, resolve
from glint.files import write_text
from glint.report import mechanisms, wording
from glint.report.leads import lead
from glint.report.results import HEADLINE, Results
from glint.report.rivals import others
from glint.tasks.tokenizer import BOS, CONTROL_IDS, EOS, PAD, SEP, encode

SCRIPTS = {"reveal_css": "reveal.css", "reveal_js": "reveal.js", "notes_js": "plugin/notes.js"}
"""What is taken of reveal.js, below its folder `dist`."""
FIGURES = ("pretraining", "rl", "before_after", "families")
CONTROL = {PAD: "pad", BOS: "bos", EOS: "eos", SEP: "sep"}
VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥"}
TYPED = "return é"
"""What the encoder shows before anybody types: its last letter takes two bytes."""
MOST_SAMPLES = 32
"""Samples of a group that fit on a slide."""
MOST_BYTES = 22
"""Bytes of an answer that fit on a slide side by side."""
MOST_LAYERS = 12
"""Layers that fit on a slide one below the other."""
MOST_SEEDS = 8
"""Seeds whose counts fit on a slide."""


def render(config: Config, tables: Path, claims: Path, figures: Path, reveal: Path, out: Path) -> None:
    """Write the slides to `out` from the folder `tables`, the table `claims`, the SVG files in `figures` and the folder of reveal.js.

    Raises ValueError where reveal.js is not there.
    """
    scripts = {name: inlined(_part(reveal, file)) for name, file in SCRIPTS.items()}
    results = Results(tables, claims)
    pictures = {name: Markup((figures / f"{name}.svg").read_text(encoding="utf-8")) for name in FIGURES}
    content = _content(config, results) | scripts | {"figures": pictures}
    write_text(out, _environment().get_template("slides.html").render(content))


def _part(reveal: Path, name: str) -> str:
    path = reveal / "dist" / name
    if not path.is_file():
        raise ValueError(f"{path} is missing, and the slides are shown with it: `make install` brings reveal.js")
    return path.read_text(encoding="utf-8")


def inlined(code: str) -> Markup:
    """Return code as it may stand inside a script or style element, which the first `</script` and some `<!--` would end or stretch."""
    return Markup(code.replace("</script", "<\\/script").replace("</style", "<\\/style").replace("<!--", "<\\!--"))


def glyph(token: int) -> str:
    """Return a token as a reader sees it: a printable letter, a sign for white space, other bytes in hex, the name of a control id."""
    if token < CONTROL_IDS:
        return CONTROL[token]
    letter = chr(token - CONTROL_IDS)
    if letter in VISIBLE:
        return VISIBLE[letter]
    return letter if letter.isascii() and letter.isprintable() else f"\\x{token - CONTROL_IDS:02x}"


def signed(value: float) -> str:
    """Return an advantage with its sign and three digits."""
    return f"{value:+.3f}".replace("-", wording.MINUS)


def reward(value: float) -> str:
    """Return a reward, a baseline or a spread, with up to three digits."""
    return f"{value:.3g}".replace("-", wording.MINUS)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("glint.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    for name in ("share", "setting", "points", "interval", "whole", "count", "metric_name"):
        environment.globals[name] = getattr(wording, name)
    environment.globals |= {"glyph": glyph, "signed": signed, "reward": reward, "encode": encode}
    return environment


def _content(config: Config, results: Results) -> dict[str, Any]:
    plan = config.studies[results.study]
    recipe = resolve(config, results.study, results.arm)
    lesson = results.read_json("lesson")
    return {
        "config": config,
        "digest": digest(config),
        "plan": plan,
        "recipe": recipe,
        "results": results,
        "lesson": lesson,
        "example": results.read_json("example"),
        "others": others(results),
        "rivals": lead(config, results),
        "sparse_every": SPARSE_EVERY,
        "limits": {"samples": MOST_SAMPLES, "bytes": MOST_BYTES, "layers": MOST_LAYERS, "seeds": MOST_SEEDS},
        "tokens": {"offset": CONTROL_IDS, "control": CONTROL, "typed": TYPED},
        "model": {
            "rhythm": mechanisms.rhythm(recipe.model),
            "seen": mechanisms.seen(recipe.model),
            "memory": mechanisms.memory(recipe.model),
        },
        **_outcome(results, plan.analysis.outcome, plan.analysis.control),
    }


def _outcome(results: Results, metric: str, control: str | None) -> dict[str, Any]:
    training = results.of_study("rl").query("arm == @results.arm and status == 'complete'")
    starts = results.of_study("selection").query("arm == @results.arm")
    return {
        "metric": metric,
        "headline": {phase: results.estimate("targets", metric, phase) for phase in ("before", "after", "gain")},
        "control": results.estimate("targets", metric, "gain", arm=control) if control else None,
        "constants": results.of_study("constants").groupby("name")["value"].first().to_dict(),
        "starts": starts.to_dict("records"),
        "training": training[["groups", "rollouts", "updates", "exact", "invalid", "zero_spread_groups"]].sum().to_dict(),
        "seeds": _seeds(results, metric),
        "families": _families(results),
        "verdicts": results.claims["verdict"].value_counts().to_dict(),
        "beside": _beside(results),
    }


def _seeds(results: Results, metric: str) -> list[dict[Hashable, Any]]:
    table = results.of_study("seeds")
    front = (table["arm"] == results.arm) & (table["scope"] == "targets") & (table["stop"] == results.stop) & (table["metric"] == metric)
    rows: list[dict[Hashable, Any]] = table[front].to_dict("records")
    return rows


def _families(results: Results) -> dict[str, list[str]]:
    """Return the families whose sampled pass rate rose, fell, or did neither, as far as the interval of the gain tells."""
    gains = {name: results.estimate(name, "sampled_exact", "gain") for name in results.families}
    rose = [name for name, gain in gains.items() if gain["low"] > 0]
    fell = [name for name, gain in gains.items() if gain["high"] < 0]
    return {"rose": rose, "fell": fell, "open": [name for name in gains if name not in (*rose, *fell)]}


def _beside(results: Results) -> list[dict[str, Any]]:
    """Return the published gains on the target families beside ours, each with what is known before and after RL."""
    rows = []
    for metric, name in HEADLINE.items():
        published = results.published(f"confirm.{name}.targets.")
        verdict = results.claims.loc[results.claims["id"] == f"confirm.{name}.targets.gain", "verdict"]
        if {"before", "after", "gain"} <= published.keys() and metric in results.metrics:
            ours = {phase: results.estimate("targets", metric, phase) for phase in ("before", "after", "gain")}
            rows.append({"metric": metric, "published": published, "ours": ours, "verdict": _only(verdict)})
    return rows


def _only(verdicts: pd.Series) -> str:
    (verdict,) = verdicts
    return str(verdict)
