"""Colours of pages and pictures: readable, and told apart with every kind of colour vision."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from glint.report import svg

CSS = (Path(svg.__file__).parent / "templates/style.css").read_text()
PAGES = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)]
"""Colours of the page, light and dark."""
VISION = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""What is seen of linear RGB: Machado, Oliveira and Fernandes (2009), severity 1."""
TO_XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])
"""sRGB with the white of D65 (IEC 61966-2-1)."""


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """Return the contrast ratio of WCAG 2."""
    low, high = sorted(TO_XYZ[1] @ linear(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    """Return CIE L*a*b* of linear RGB."""
    ratio = TO_XYZ @ np.clip(rgb, 0, 1) / TO_XYZ.sum(axis=1)
    bent = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * bent[1] - 16, 500 * (bent[0] - bent[1]), 200 * (bent[1] - bent[2])])


def distance(one, other, seen):
    """Return the distance of two colours in L*a*b*; about 2.3 is just noticeable."""
    return np.linalg.norm(lab(seen @ linear(one)) - lab(seen @ linear(other)))


def test_the_measures_agree_with_known_values():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
    assert lab(linear("#ff0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    assert distance("#00a000", "#c08000", VISION["deuteranopia"]) < distance("#00a000", "#c08000", VISION["all cones"]) / 2


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("palette", [svg.LIGHT, svg.DARK], ids=["light", "dark"])
def test_no_two_colours_of_a_figure_look_alike(palette, vision):
    marks = [colour for name, colour in palette.items() if name != "faint"]
    assert min(distance(*pair, np.array(VISION[vision])) for pair in combinations(marks, 2)) > 10


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("page", PAGES, ids=["light", "dark"])
def test_verdicts_look_different(page, vision):
    shown = [page[name] for name in ("accent", "warn", "soft")]
    assert min(distance(*pair, np.array(VISION[vision])) for pair in combinations(shown, 2)) > 10


@pytest.mark.parametrize(("page", "palette"), zip(PAGES, (svg.LIGHT, svg.DARK), strict=True), ids=["light", "dark"])
def test_letters_and_marks_stand_out(page, palette):
    assert contrast(page["ink"], page["page"]) > 7
    for ground in ("page", "panel"):
        assert min(contrast(page[name], page[ground]) for name in ("ink", "soft", "accent", "warn")) > 4.5
    assert contrast(palette["ink"], page["page"]) > 7
    assert min(contrast(palette[name], page["page"]) for name in palette.keys() - {"ink", "faint"}) > 3
