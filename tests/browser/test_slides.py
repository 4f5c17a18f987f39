"""The slides in a browser: they load, keys turn them, a phone reads them as a page."""

import json
from pathlib import Path

import pytest

from glint.analysis import lesson
from glint.manifest import Entry, Manifest
from glint.report import slides
from tests.browser.conftest import overflowing, visit
from tests.report import synthetic, traces

REVEAL = Path(__file__).parents[2] / "node_modules/reveal.js"
SAMPLES = 16
"""Of a group, as many as the published recipe draws."""
SHOWN = "[...document.querySelectorAll('.slides section.present *')].filter((one) => one.checkVisibility())"
BOTTOM = f"Math.max(...{SHOWN}.map((one) => one.getBoundingClientRect().bottom)) / innerHeight"
OPEN = "document.querySelector('.slides section.present').textContent.slice(0, 200)"


@pytest.fixture(scope="session")
def file(report):
    entries = traces.write(report.parent, report.parent / "results/manifest.json")
    lesson.analyse(synthetic.config(), Manifest([Entry(**entry) for entry in entries]), report / "lesson.json")
    taught = json.loads((report / "lesson.json").read_text())
    taught["group"]["samples"] = (taught["group"]["samples"] * SAMPLES)[:SAMPLES]
    (report / "lesson.json").write_text(json.dumps(taught))
    slides.render(synthetic.config(), report, report / "claims.csv", report / "figures", REVEAL, report / "slides.html")
    return report / "slides.html"


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_they_load_in_silence_and_fit_the_window(browser, file, width):
    with visit(browser, file, width) as opened:
        assert overflowing(opened.page) == []


def test_keys_turn_the_slides(browser, file):
    from playwright.sync_api import expect

    with visit(browser, file) as opened:
        page = opened.page
        expect(page.locator(".slides section.present").first).to_be_visible()
        first = page.evaluate(OPEN)
        page.keyboard.press("ArrowRight")
        assert page.evaluate(OPEN) != first
        page.keyboard.press("ArrowLeft")
        assert page.evaluate(OPEN) == first


def test_a_link_to_a_slide_opens_it_on_a_phone_too(browser, file):
    top = "(number) => document.querySelectorAll('.slides > section')[number].getBoundingClientRect().top"
    with visit(browser, file, 360, "#/7") as opened:
        assert abs(opened.page.evaluate(top, 7)) < 1
        opened.page.evaluate("location.hash = '#/3'")
        opened.page.wait_for_function(f"Math.abs(({top})(3)) < 1")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1440, 900)])
def test_no_slide_is_taller_than_the_window(browser, file, width, height):
    with visit(browser, file, width) as opened:
        page = opened.page
        page.set_viewport_size({"width": width, "height": height})
        slides_there = page.locator(".slides > section").count()
        tall = {}
        for number in range(slides_there):
            bottom = page.evaluate(BOTTOM)
            if bottom > 1:
                tall[number + 1] = bottom
            page.keyboard.press("ArrowRight")
        assert (slides_there > 15, tall) == (True, {})
