"""Drawing style: byte-stable SVG that reads on white and on dark pages, for the colour-blind too."""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# Each colour is drawn as a stand-in, which a style sheet inside the picture resolves for light and for dark.
# The hues are those of Okabe and Ito (2008), told apart with any kind of colour vision.
INK, FAINT, FIRST, SECOND, THIRD, FOURTH, FIFTH = (f"#0{place}0{place}0{place}" for place in range(1, 8))
NAMES = {INK: "ink", FAINT: "faint", FIRST: "first", SECOND: "second", THIRD: "third", FOURTH: "fourth", FIFTH: "fifth"}
_ON_WHITE = ("#22262b", "#c9ced4", "#0072b2", "#c65500", "#78828c", "#80336a", "#009070")
_ON_BLACK = ("#e3e6ea", "#444b53", "#56b4e9", "#f0a53a", "#8b929a", "#e8a5d2", "#59d9ae")
LIGHT, DARK = (dict(zip(NAMES.values(), colours, strict=True)) for colours in (_ON_WHITE, _ON_BLACK))
PUBLISHED: dict[str, Any] = {
    "marker": "D",
    "markersize": 6,
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markeredgewidth": 1.3,
    "linestyle": "none",
}
"""How a published figure is drawn beside ours."""
WIDTH = 4.8
"""Inches; narrow, so that the lettering stays readable when a phone scales the picture down."""

RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


@contextmanager
def drawing(
    name: str, height: float, rows: int = 1, columns: int = 1, heights: Sequence[float] | None = None
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure and its panels, row by row, in the house style; `name` salts the ids inside the SVG.

    `heights` are those of the rows, relative to each other; none: all alike.
    """
    with mpl.rc_context(RC | {"svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, list(figure.subplots(rows, columns, squeeze=False, height_ratios=heights).flat)


def to_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """Return the SVG text of `figure`; `title` and `description` are its alternative text. Call it within `drawing`."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    for stand_in, colour in NAMES.items():
        text = text.replace(stand_in, f"var(--{colour})")
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)  # several pictures share one page
    head = f'<title id="{name}-title">{escape(title)}</title>\n<desc id="{name}-desc">{escape(description)}</desc>\n{_style(name)}'
    opening = f'<svg role="img" aria-labelledby="{name}-title {name}-desc" class="{name}"'
    return re.sub(r"<svg([^>]*)>", lambda match: f"{opening}{match[1]}>\n{head}", text, count=1)


def _style(name: str) -> str:
    light, dark = ("".join(f"--{key}:{value};" for key, value in colours.items()) for colours in (LIGHT, DARK))
    return f"<style>svg.{name}{{{light}}}@media screen and (prefers-color-scheme:dark){{svg.{name}{{{dark}}}}}</style>\n"
