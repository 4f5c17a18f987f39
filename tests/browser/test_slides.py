"""The slides in a browser: they load, keys turn them, a phone reads them as a page."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from glint.manifest import Entry, Manifest
from tests.browser.conftest import overflowing, visit
from tests.report import synthetic

REVEAL = Path(__file__).parents[2] / "node_modules/reveal.js"
OPEN = "document.querySelector('.slides section.present').textContent.slice(0, 200)"


@pytest.fixture(scope="session")
def file(report):
    slides, lesson, traces = (
        pytest.importorskip(name, reason="this checkout has no slides", exc_type=ModuleNotFoundError)
        for name in ("glint.report.slides", "glint.analysis.lesson", "tests.report.traces")
    )
    if not (REVEAL / "dist").is_dir():
        pytest.skip("reveal.js is not installed: make install brings it")
    entries = traces.write(report.parent, report.parent / "results/manifest.json")
    lesson.analyse(synthetic.config(), Manifest([Entry(**entry) for entry in entries]), report / "lesson.json")
    slides.render(synthetic.config(), report, report / "claims.csv", report / "figures", REVEAL, report / "slides.html")
    return report / "slides.html"


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_they_load_in_silence_and_fit_the_window(browser, file, width):
    with visit(browser, file, width) as opened:
        assert overflowing(opened.page) == []


def test_keys_turn_the_slides(browser, file):
    with visit(browser, file) as opened:
        page = opened.page
        expect(page.locator(".slides section.present").first).to_be_visible()
        first = page.evaluate(OPEN)
        page.keyboard.press("ArrowRight")
        assert page.evaluate(OPEN) != first
        page.keyboard.press("ArrowLeft")
        assert page.evaluate(OPEN) == first
