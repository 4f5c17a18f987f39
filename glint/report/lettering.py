"""Lettering that fits: text wrapped to a width and shortened where there is no room, on a canvas measured in pixels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

DPI = 100
POINTS_AN_INCH = 72
LINE = 1.22
"""Height of a line in font sizes."""
ELLIPSIS = "…"
WORD = re.compile(r"[^ \t\n]+")
"""A narrow space does not end a word: a number keeps its unit."""


@dataclass(frozen=True)
class Block:
    """Lines of text at a font size, in pixels."""

    lines: tuple[str, ...]
    size: float

    @property
    def height(self) -> float:
        """Return the height in pixels."""
        return len(self.lines) * self.size * LINE


class Canvas:
    """A picture of `width` x `height` pixels; places are counted from its upper left corner."""

    def __init__(self, width: int, height: int):
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
        FigureCanvasAgg(self.figure)

    def write(self, x: float, y: float, block: Block, *, colour: str, weight: str = "normal", right: bool = False) -> None:
        """Write `block` with its upper edge at y, its left edge at x, or its right edge where `right` is set."""
        for place, line in enumerate(block.lines):
            self.figure.text(
                x / self.width,
                1 - (y + (place + 0.5) * block.size * LINE) / self.height,
                line,
                size=points(block.size),
                color=colour,
                weight=weight,
                ha="right" if right else "left",
                va="center_baseline",
                parse_math=False,
            )

    def panel(self, x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
        """Return a rectangle in the shares of the figure that `add_axes` takes."""
        return x / self.width, 1 - (y + height) / self.height, width / self.width, height / self.height

    def length(self, text: str, size: float, weight: str = "normal") -> float:
        """Return the width of one line in pixels."""
        drawn = Text(0, 0, text, size=points(size), weight=weight, figure=self.figure, parse_math=False)
        return float(drawn.get_window_extent().width)

    def shortened(self, text: str, width: float, size: float, weight: str = "normal") -> str:
        """Return `text`, where it is wider than `width` with as much of its middle left out as must be."""
        candidates = (_without_middle(text, kept) for kept in range(len(text), 0, -1))
        return next((short for short in candidates if self.length(short, size, weight) <= width), ELLIPSIS)

    def wrapped(self, text: str, width: float, size: float, weight: str = "normal") -> tuple[str, ...]:
        """Return `text` in lines of at most `width`, broken between words; a word that is too wide by itself is shortened."""
        lines: list[str] = []
        for word in (self.shortened(word, width, size, weight) for word in WORD.findall(text)):
            longer = f"{lines[-1]} {word}" if lines else word
            if lines and self.length(longer, size, weight) <= width:
                lines[-1] = longer
            else:
                lines.append(word)
        return tuple(lines)

    def fitted(self, text: str, width: float, height: float, sizes: Sequence[float], weight: str = "normal") -> Block:
        """Return `text` at the first of `sizes` at which it fits; if none will do, at the last, with as many words as fit."""
        for size in sizes:
            block = Block(self.wrapped(text, width, size, weight), size)
            if block.height <= height:
                return block
        rows = max(1, int(height / (size * LINE)))
        last = self._beginning(block.lines[rows - 1], width, size, weight)
        return Block((*block.lines[: rows - 1], last), size)

    def _beginning(self, line: str, width: float, size: float, weight: str) -> str:
        """Return the first words of `line` with an ellipsis behind them, no wider than `width`."""
        words = WORD.findall(line)
        candidates = (" ".join(words[:kept]) + ELLIPSIS for kept in range(len(words), 0, -1))
        return next((text for text in candidates if self.length(text, size, weight) <= width), ELLIPSIS)


def points(pixels: float) -> float:
    """Return a font size in points."""
    return pixels * POINTS_AN_INCH / DPI


def _without_middle(text: str, kept: int) -> str:
    if kept >= len(text):
        return text
    head = (kept + 1) // 2
    return text[:head] + ELLIPSIS + text[len(text) - (kept - head) :]
