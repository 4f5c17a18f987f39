"""The figures of the vision studies: learning curves, and held-out images with the answers of each arm."""

import base64
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from glint.config.vision import SIDE
from glint.report.marks import seed_lines, shared_legend, styles_of
from glint.report.results import Results
from glint.report.svg import INK, drawing, to_svg
from glint.tasks.digits import DIGITS

NONE = "This run has 0 vision studies."
COLUMNS = 5
CHANCE = 1 / DIGITS
"""Share of held-out images that a guess names: each digit is there equally often."""


def vision(results: Results) -> str:
    """Draw the share of held-out images named over the steps: every seed and the mean of each arm, a panel a study."""
    scores = results.read("vision").dropna(subset=["step"])
    scores["share"] = scores["right"] / scores["of"]
    studies = scores["study"].unique().tolist()
    with drawing("vision", 1.2 + 2.2 * max(1, len(studies)), rows=max(1, len(studies))) as (figure, panels):
        ends = []
        for axes, study in zip(panels, studies, strict=False):
            ends += [f"{study}, {text}" for text in _learning(axes, scores[scores["study"] == study])]
            axes.set_title(f"study {study}")
        panels[-1].set_xlabel("optimiser step")
        shared_legend(figure, panels, columns=3)
        text = "; ".join(ends)
        return to_svg(figure, "vision", "Digits named on held-out images, as training goes on", f"{text}." if text else NONE)


def _learning(axes: Axes, scores: pd.DataFrame) -> list[str]:
    """Draw the arms of one study; return where each ends, in words."""
    ends = []
    styles = styles_of(scores["arm"].unique().tolist())
    for arm, rows in scores.groupby("arm", sort=False):
        table = rows.pivot(index="step", columns="seed", values="share")
        seed_lines(axes, table, f"arm {arm}", **(styles[str(arm)] | {"ms": 4}))
        ends.append(f"arm {arm}: {table.iloc[-1].mean():.1%} at step {table.index[-1]}")
    axes.axhline(CHANCE, color=INK, ls=":", lw=1, label="chance")
    axes.set(ylabel="digits named", ylim=(-0.04, 1.04))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    return ends


def images(results: Results) -> str:
    """Draw the held-out images that a rule has chosen, of the first vision study, with what each arm answers."""
    found = results.read_json("vision_images")
    shown = found["shown"] if found else []
    arms = [arm for arm in results.of_study("vision", found["study"])["arm"].unique() if arm in shown[0]["answers"]] if found else []
    colours = {arm: style["color"] for arm, style in styles_of(arms).items()}
    rows = max(1, -(-len(shown) // COLUMNS))
    with drawing("images", 0.6 + rows * (0.95 + 0.2 * len(arms)), rows=rows, columns=COLUMNS) as (figure, panels):
        for axes in panels:
            axes.axis("off")
        for axes, one in zip(panels, shown, strict=False):
            axes.imshow(_pixels(one["pixels"]), interpolation="nearest")
            for place, (arm, colour) in enumerate(colours.items()):
                axes.text(
                    0.5,
                    -0.14 - 0.22 * place,
                    _verdict(one["answers"][arm]),
                    color=colour,
                    ha="center",
                    va="center",
                    transform=axes.transAxes,
                )
        handles = [panels[0].plot([], [], "s", color=colour, label=f"arm {arm} says")[0] for arm, colour in colours.items()]
        if handles:
            figure.legend(handles=handles, loc="outside upper center", ncols=2)
        text = "; ".join(f"arm {arm} names {sum(one['answers'][arm]['right'] for one in shown)} of these {len(shown)}" for arm in arms)
        return to_svg(figure, "images", "Held-out images and the answers of each arm", f"{text}." if text else NONE)


def _verdict(answer: dict[str, Any]) -> str:
    return f"{answer['says'] or 'no byte'} {'✓' if answer['right'] else '✗'}"


def _pixels(text: str) -> NDArray[np.uint8]:
    """Return an image [H, W, C] from the bytes of its pixels in base64."""
    return np.frombuffer(base64.b64decode(text), dtype=np.uint8).reshape(SIDE, SIDE, 3)
