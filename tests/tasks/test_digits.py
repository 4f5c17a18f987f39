"""Images of digits: shapes as on a display, colours, shifts and noise within their bounds, and draws that never meet."""

import numpy as np
import pytest
from pydantic import ValidationError

from glint.config.vision import VisionRecipe
from glint.tasks.digits import LIT, held_out, stencils, training_batch

PLAN = VisionRecipe()
EIGHT = """
############
############
############
###......###
###......###
###......###
###......###
###......###
############
############
############
###......###
###......###
###......###
###......###
###......###
###......###
############
############
############
"""


def test_an_eight_lights_every_segment_and_a_one_the_right_ones():
    drawn = stencils(PLAN)
    rows = ["".join("#" if lit else "." for lit in row) for row in drawn[8, 6:26, 10:22]]
    assert rows == EIGHT.split()
    assert drawn[8].sum() == drawn[8, 6:26, 10:22].sum()
    assert drawn[1].sum() == 20 * 3
    assert drawn[1, 6:26, 19:22].all()


def test_digits_differ_in_the_segments_that_displays_light():
    """Seven-segment patterns as their usual bit codes, segment a the lowest bit."""
    codes = [sum(1 << "abcdefg".index(name) for name in names) for names in LIT]
    assert codes == [0x3F, 0x06, 0x5B, 0x4F, 0x66, 0x6D, 0x7D, 0x07, 0x7F, 0x6F]
    assert len({stencil.tobytes() for stencil in stencils(PLAN)}) == 10


@pytest.mark.parametrize("stroke", range(1, 10))
def test_the_smallest_digits_that_a_stroke_leaves_open_still_differ(stroke):
    size = {"stroke": stroke, "shift": 0, "digit_height": 3 * stroke + 2, "digit_width": 2 * stroke + 1}
    assert len({stencil.tobytes() for stencil in stencils(VisionRecipe(**size))}) == 10
    for name in ("digit_height", "digit_width"):
        with pytest.raises(ValidationError, match=f"stroke {stroke} closes a digit"):
            VisionRecipe(**(size | {name: size[name] - 1}))


def test_an_image_is_its_shifted_digit_in_one_colour_under_noise():
    images = held_out(PLAN)
    assert images.pixels_NHWC.shape == (200, 32, 32, 3)
    assert images.pixels_NHWC.dtype == np.float32
    assert (images.pixels_NHWC.min(), images.pixels_NHWC.max()) == (0, 1)
    offsets = set()
    for pixels_HWC, digit in zip(images.pixels_NHWC, images.digits_N, strict=True):
        lit_HW = pixels_HWC.max(-1) > 0.28
        shifts = [(row, column) for row in range(-2, 3) for column in range(-2, 3)]
        wrong = {shift: (lit_HW != np.roll(stencils(PLAN)[digit], shift, (0, 1))).sum() for shift in shifts}
        offset = min(wrong, key=lambda shift: wrong[shift])
        offsets.add(offset)
        assert wrong[offset] <= 6
        inside = pixels_HWC[np.roll(stencils(PLAN)[digit], offset, (0, 1))]
        assert (inside.std(0) < 0.1).all()
    assert offsets == {(row, column) for row in range(-2, 3) for column in range(-2, 3)}


def test_noise_has_its_deviation_where_nothing_cuts_it():
    quiet, loud = (training_batch(PLAN.model_copy(update={"noise": noise}), 1, 0).pixels_NHWC for noise in (0.0, 0.06))
    middle = (quiet > 0.4) & (quiet < 0.7)
    assert (loud - quiet)[middle].std() == pytest.approx(0.06, rel=0.05)


def test_every_digit_is_held_out_equally_often():
    assert np.bincount(held_out(PLAN).digits_N).tolist() == [20] * 10


def test_seeds_and_steps_draw_their_own_images_and_the_held_out_ones_are_none_of_them():
    def drawn(images):
        return {image.tobytes() for image in images.pixels_NHWC}

    batches = [training_batch(PLAN, seed, step) for seed in (1, 2, PLAN.evaluation_seed) for step in range(3)]
    every = [held_out(PLAN), *batches]
    assert len(set.union(*map(drawn, every))) == 200 + 9 * 40
    assert drawn(training_batch(PLAN, 1, 0)) == drawn(batches[0])


def test_both_paths_meet_the_same_images():
    other = VisionRecipe(path="direct_patch", lr=0.1)
    assert (training_batch(PLAN, 5, 7).pixels_NHWC == training_batch(other, 5, 7).pixels_NHWC).all()
    assert (held_out(PLAN).pixels_NHWC == held_out(other).pixels_NHWC).all()
