"""Figures: the same bytes each time, alternative text, colours for light and dark, nothing from outside."""

import re
import shutil
from xml.etree import ElementTree

import pandas as pd
import pytest

from glint.replication import compare
from glint.report import figures, svg
from glint.report.figures import FIGURES, NAMES, draw
from glint.report.results import Results
from tests.report import synthetic

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", NAMES)
def test_the_same_tables_give_the_same_bytes(analysed, reported, tmp_path, name):
    draw(analysed / "report", reported / "claims.csv", tmp_path)
    assert (tmp_path / f"{name}.svg").read_bytes() == (reported / "figures" / f"{name}.svg").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_well_formed_and_has_alternative_text(reported, name):
    root = ElementTree.parse(reported / "figures" / f"{name}.svg").getroot()
    title, description = (next(root.iter(f"{SVG}{name}")) for name in ("title", "desc"))
    assert title.text
    assert re.search(r"\d", description.text or "")
    assert root.get("role") == "img"
    assert root.attrib["aria-labelledby"].split() == [title.get("id"), description.get("id")]


@pytest.mark.parametrize("name", NAMES)
def test_every_colour_follows_the_scheme(reported, name):
    text = (reported / "figures" / f"{name}.svg").read_text()
    drawn = re.sub(r"<style>svg.*?</style>", "", text, flags=re.DOTALL)
    assert not re.search(r"#[0-9a-fA-F]{6}\b", drawn)
    assert set(re.findall(r"var\(--(\w+)\)", drawn)) <= set(svg.LIGHT) == set(svg.DARK)
    assert "prefers-color-scheme:dark" in text


def test_pictures_on_one_page_share_no_id(reported):
    ids = [found for name in NAMES for found in re.findall(r'\bid="([^"]+)"', (reported / "figures" / f"{name}.svg").read_text())]
    assert len(ids) == len(set(ids))


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize(("palette", "page"), [(svg.LIGHT, "#ffffff"), (svg.DARK, "#0d1117")])
def test_marks_and_letters_stand_out_from_the_page(palette, page):
    def contrast(colour):
        lights = sorted((luminance(colour), luminance(page)))
        return (lights[1] + 0.05) / (lights[0] + 0.05)

    assert contrast(palette["ink"]) > 7
    assert min(contrast(palette[name]) for name in palette.keys() - {"ink", "faint"}) > 3


def test_the_description_holds_the_estimates(analysed, reported):
    results = Results(analysed / "report", reported / "claims.csv")
    after = results.estimate("targets", "greedy_pass1", "after")["estimate"]
    assert f"{after:.1%} after" in (reported / "figures/before_after.svg").read_text()


def test_a_run_without_claims_still_draws_all(analysed, tmp_path):
    compare(synthetic.config(), None, analysed / "report", tmp_path / "claims.csv")
    draw(analysed / "report", tmp_path / "claims.csv", tmp_path / "figures")
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == set(NAMES)
    assert "published figure" not in (tmp_path / "figures/rl.svg").read_text()


def test_an_arm_with_a_pretraining_of_its_own_leaves_the_curves_of_the_front_arm_alone(analysed, reported, tmp_path):
    shutil.copytree(analysed / "report", tmp_path / "tables")
    curves = pd.read_csv(tmp_path / "tables/curves.csv")
    other = curves[curves["curve"].str.startswith("pretrain") & (curves["study"] == "main")].assign(arm="shuffled", value=0.5)
    assert len(other)
    pd.concat([curves, other]).to_csv(tmp_path / "tables/curves.csv", index=False)
    drawn = FIGURES["pretraining"](Results(tmp_path / "tables", reported / "claims.csv"))
    assert drawn == (reported / "figures/pretraining.svg").read_text()


def test_published_figures_are_found_by_the_front_of_their_id(analysed, reported):
    results = Results(analysed / "report", reported / "claims.csv")
    assert results.published("rl.dev_exact.group_") == pytest.approx(
        {"0": 4 / 96, "24": 23 / 96, "48": 27 / 96, "72": 32 / 96, "96": 44 / 96}, rel=1e-6
    )
    assert pd.read_csv(reported / "claims.csv")["published"].notna().all()


def test_no_two_arms_of_the_rl_figure_look_alike(analysed, reported, monkeypatch):
    results, drawn = Results(analysed / "report", reported / "claims.csv"), []
    monkeypatch.setattr(figures, "seed_lines", lambda axes, table, label, **style: drawn.append(tuple(sorted(style.items()))))
    results.arms = [*results.arms, "third", "fourth", "fifth"]
    figures.rl(results)
    assert len(set(drawn)) == len(drawn) == len(results.arms)
