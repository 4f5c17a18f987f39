"""Images of digits: seven segments in one random colour on black, shifted a little, under noise; all drawn from a seed.

Axes: N images, H rows, W columns, C colour channels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from glint.config.vision import SIDE, VisionRecipe
from glint.randomness import rng

DIGITS = 10
DARKEST = 0.35
"""Least brightness of a colour's channel, well above the noise."""

LIT = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")
"""Segments of each digit, named as on displays: a on top, on clockwise to f, g across."""


@dataclass(frozen=True)
class Images:
    """Images with what they show."""

    pixels_NHWC: NDArray[np.float32]
    """Brightness in [0, 1]."""
    digits_N: NDArray[np.int64]


def held_out(recipe: VisionRecipe) -> Images:
    """Return the images on which checkpoints are scored: from the evaluation seed, each digit equally often to within one."""
    generator = rng(recipe.evaluation_seed, "digits", "held out")
    return _draw(generator.permutation(np.arange(recipe.held_out) % DIGITS), recipe, generator)


def training_batch(recipe: VisionRecipe, seed: int, step: int) -> Images:
    """Return the images of one optimiser step (from 0): each step of each training seed draws its own, digits uniformly."""
    generator = rng(seed, "digits", "train", step)
    return _draw(generator.integers(DIGITS, size=recipe.batch), recipe, generator)


def stencils(recipe: VisionRecipe) -> NDArray[np.bool_]:
    """Return where each digit, in the centre, is lit, shape (10, H, W)."""
    lit = np.zeros((DIGITS, SIDE, SIDE), dtype=bool)
    top, left = (SIDE - recipe.digit_height) // 2, (SIDE - recipe.digit_width) // 2
    for digit, names in enumerate(LIT):
        for name in names:
            row, column, height, width = _segment(name, recipe)
            lit[digit, top + row : top + row + height, left + column : left + column + width] = True
    return lit


def _segment(name: str, recipe: VisionRecipe) -> tuple[int, int, int, int]:
    """Return row and column of a segment's corner within the digit, its height and its width."""
    height, width, stroke = recipe.digit_height, recipe.digit_width, recipe.stroke
    half = height // 2
    if name in "adg":
        return {"a": 0, "g": (height - stroke) // 2, "d": height - stroke}[name], 0, stroke, width
    upper = name in "bf"
    return 0 if upper else half, 0 if name in "ef" else width - stroke, half if upper else height - half, stroke


def _draw(digits_N: NDArray[np.int64], recipe: VisionRecipe, generator: Generator) -> Images:
    """Return one image a digit: shifted, coloured, under noise, cut to [0, 1]."""
    count = len(digits_N)
    shifts_N2 = generator.integers(-recipe.shift, recipe.shift + 1, size=(count, 2))
    colours_NC = generator.uniform(DARKEST, 1, size=(count, 3))
    noise_NHWC = recipe.noise * generator.standard_normal((count, SIDE, SIDE, 3), dtype=np.float32)
    lit = stencils(recipe)
    lit_NHW = np.stack([np.roll(lit[digit], shift, axis=(0, 1)) for digit, shift in zip(digits_N, shifts_N2.tolist(), strict=True)])
    pixels_NHWC = lit_NHW[..., None] * colours_NC[:, None, None, :] + noise_NHWC
    return Images(np.clip(pixels_NHWC, 0, 1).astype(np.float32), digits_N)
