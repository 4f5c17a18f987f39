"""What several figures draw: styles that differ without colour, means over the seeds that have a point."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from glint.report.marks import STYLES, arm_legend, seed_lines, styles_of
from glint.report.svg import drawing


def test_arms_differ_by_marker_even_where_colours_cannot_be_told_apart():
    assert len({style["marker"] for style in STYLES}) == len(STYLES)
    assert len({(style["color"], style["ls"]) for style in STYLES}) == len(STYLES)


def test_an_arm_beyond_the_styles_begins_them_again():
    names = [f"arm_{place}" for place in range(len(STYLES) + 1)]
    styles = styles_of(names)
    assert styles[names[-1]] == styles[names[0]] != styles[names[1]]


def test_the_mean_is_drawn_where_every_seed_has_a_point():
    axes = Figure().subplots()
    seed_lines(axes, pd.DataFrame({1: [1.0, 2.0, None], 2: [3.0, 4.0, 5.0]}, index=[10, 20, 30]), "mean", color="#010101")
    first, second, mean = (np.asarray(line.get_xydata()).tolist() for line in axes.lines)
    assert first == [[10, 1], [20, 2]]
    assert second == [[10, 3], [20, 4], [30, 5]]
    assert mean == [[10, 2], [20, 3]]


@pytest.mark.parametrize("name", ["dense_attention", "every_layer_attends_alike"])
def test_the_legend_of_many_arms_fits_the_figure_and_names_each_once(name):
    arms = [f"{name[:-2]}{place:02}" for place in range(11)]
    with drawing("legend", 4, rows=2) as (figure, panels):
        for axes in panels:
            for arm, style in styles_of(arms).items():
                axes.plot([0, 1], [0, 1], label=arm, **style)
        arm_legend(figure, panels, arms)
        figure.draw_without_rendering()
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == arms
        inside = legend.get_window_extent()
        assert figure.bbox.x0 <= inside.x0
        assert inside.x1 <= figure.bbox.x1
