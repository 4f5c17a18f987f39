"""A picture of one study for those who post it: question, verdict, numbers with intervals, seeds. The size is that of link previews."""

import io
from math import isnan
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from glint.report.findings import Comparison, Finding
from glint.report.lettering import LINE, Block, Canvas, points
from glint.report.svg import LIGHT
from glint.report.wording import MINUS

WIDTH, HEIGHT = 1200, 630
MARGIN = 48
SMALLEST = 20
"""Smallest font size in pixels: half of it is still read in a preview of half the size."""
QUESTION, QUESTION_SIZES = 140, (50, 46, 42, 38, 34, 30, 27, 24, 22)
"""Greatest height of the question, and the sizes that are tried."""
LEFT = 400
"""Width of the column with the numbers."""
GAP = 40
FOOT = 44
TICKS = 34
"""Height of the ticks alone."""
LEAST = 0.01
"""What the axis shows at least on both sides of zero: a point, or a hundredth of a nat."""
LABELS = 0.6
"""Largest share of the right column that the names of the rows take."""
PITCH = (22, 80)
"""Least and greatest distance of two rows."""
TIGHT = 1.1
"""Least distance of two rows in font sizes."""
BETTER, WORSE, UNDECIDED = LIGHT["first"], LIGHT["second"], LIGHT["third"]
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "axes.edgecolor": LIGHT["ink"],
    "axes.labelcolor": LIGHT["ink"],
    "xtick.color": LIGHT["ink"],
    "ytick.color": LIGHT["ink"],
    "text.color": LIGHT["ink"],
}


def draw(finding: Finding, run: str) -> bytes:
    """Return the picture of `finding` as PNG, the same bytes for the same finding."""
    with mpl.rc_context(STYLE):
        canvas = Canvas(WIDTH, HEIGHT)
        compose(canvas, finding, run)
        stream = io.BytesIO()
        canvas.figure.savefig(stream, format="png", metadata={"Software": None})
        return stream.getvalue()


def compose(canvas: Canvas, finding: Finding, run: str) -> None:
    """Put the parts of the picture on `canvas`, from top to bottom."""
    inner = WIDTH - 2 * MARGIN
    head = Block((canvas.shortened(f"Glint · run {run} · study {finding.study}", inner, SMALLEST),), SMALLEST)
    canvas.write(MARGIN, 30, head, colour=LIGHT["third"])
    question = canvas.fitted(finding.plan.question, inner, QUESTION, QUESTION_SIZES, "bold")
    canvas.write(MARGIN, 62, question, colour=LIGHT["ink"], weight="bold")
    top = 62 + question.height + 26
    _numbers(canvas, finding, top)
    _rows(canvas, finding, top)
    drawn = any(not isnan(one.low) for one in finding.comparisons)
    foot = f"{finding.certainty}; an interval that holds zero decides nothing" if drawn else finding.certainty
    canvas.write(MARGIN, HEIGHT - FOOT, canvas.fitted(foot, inner, FOOT, (SMALLEST,)), colour=LIGHT["third"])


def _numbers(canvas: Canvas, finding: Finding, top: float) -> None:
    """Write what was found at the left: the verdict large, then what stands behind it."""
    bottom = HEIGHT - FOOT - 16
    for text, height, sizes, colour, weight in _lines(finding):
        block = canvas.fitted(text, LEFT, min(height, bottom - top), sizes, weight)
        if top + block.height > bottom:
            return
        canvas.write(MARGIN, top, block, colour=colour, weight=weight)
        top += block.height + 12


def _lines(finding: Finding) -> list[tuple[str, float, tuple[int, ...], str, str]]:
    """Return the texts of the left column, each with its greatest height, its sizes, its colour and its weight."""
    one = finding.primary
    body, large = (26, 24, 22, SMALLEST), (52, 46, 40, 34, 30, 26, SMALLEST)
    if one is None:
        decided = "; ".join(each.verdict for each in finding.decided) or "no interval excludes zero"
        texts = [(finding.outcome, 130, large, LIGHT["ink"], "bold"), (decided, 190, body, LIGHT["ink"], "normal")]
    else:
        colour = _colour(finding, one)
        texts = [
            (finding.difference(one), 70, large, colour, "bold"),
            (f"{finding.ends(one)}: {finding.outcome}", 70, body, colour, "bold"),
            (one.levels, 100, body, LIGHT["ink"], "normal"),
        ]
    return [*texts, *([(finding.context, 120, (22, SMALLEST), LIGHT["third"], "normal")] if finding.context else [])]


def _rows(canvas: Canvas, finding: Finding, top: float) -> None:
    """Draw the comparisons at the right, a row each, as many as there is room for; the last line says how many are left out."""
    left, right = MARGIN + LEFT + GAP, WIDTH - MARGIN
    label = canvas.fitted(f"{finding.measured}, {finding.unit}", right - left, 2 * SMALLEST * LINE, (SMALLEST,))
    height = HEIGHT - FOOT - TICKS - label.height - 12 - top
    room, shown = int(height / PITCH[0]), finding.comparisons
    if len(shown) > room:
        shown = shown[: room - 1]
    left_out = len(finding.comparisons) - len(shown)
    rows = len(shown) + bool(left_out)
    pitch = min(PITCH[1], height / rows)
    names, size = _names(canvas, shown, min(24, int(pitch / TIGHT)), LABELS * (right - left))
    start = left + max(canvas.length(name, size) for name in names) + 16
    for place, name in enumerate([*names, *([f"and {left_out} more"] if left_out else [])]):
        colour = LIGHT["ink"] if place < len(names) else LIGHT["third"]
        canvas.write(start - 16, top + (place + 0.5) * pitch - size * LINE / 2, Block((name,), size), colour=colour, right=True)
    axes = canvas.figure.add_axes(canvas.panel(start, top, right - start, pitch * rows))
    _intervals(axes, finding, shown, rows)
    canvas.write(right, top + pitch * rows + TICKS, label, colour=LIGHT["ink"], right=True)


def _names(canvas: Canvas, shown: tuple[Comparison, ...], largest: int, width: float) -> tuple[list[str], int]:
    """Return the names of the rows and their size: the largest at which all fit, or else the smallest, shortened."""
    for size in range(largest, SMALLEST - 1, -1):
        if max(canvas.length(one.label, size) for one in shown) <= width:
            return [one.label for one in shown], size
    return [canvas.shortened(one.label, width, SMALLEST) for one in shown], SMALLEST


def _colour(finding: Finding, one: Comparison) -> str:
    """Return the colour of what speaks for the arm that is named first, against it, or for neither."""
    if one.side == "undecided":
        return UNDECIDED
    return BETTER if (one.side == "above") != finding.in_nats else WORSE


def _intervals(axes: Axes, finding: Finding, shown: tuple[Comparison, ...], rows: int) -> None:
    scale = 1 if finding.in_nats else 100
    for place, one in enumerate(shown):
        colour, marker = _colour(finding, one), "s" if one.side == "undecided" else "o"
        if not isnan(one.low):
            axes.plot([scale * one.low, scale * one.high], [place, place], color=colour, lw=4, solid_capstyle="butt")
        axes.plot(scale * one.estimate, place, marker, color=colour, ms=9, mfc="none" if isnan(one.low) else colour)
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, -scale * LEAST), max(high, scale * LEAST))
    axes.axvline(0, color=LIGHT["ink"], lw=1.2, zorder=0)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks([])
    axes.grid(axis="x", color=LIGHT["faint"], lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}".replace("-", MINUS) if value else "0"))
    axes.tick_params(axis="x", labelsize=points(SMALLEST))
