"""The rollout explorer in a browser: filters, the search, the slider, keys and widths."""

import pytest

from glint.report.explorer import render
from tests.browser.conftest import overflowing, tab_stops, visit
from tests.report import test_explorer as made

STATUSES = "[...document.querySelectorAll('#list .row')].map((row) => row.dataset.status)"


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explorer")
    render(made.CONFIG, made.write(folder / "run"), folder / "explorer.html")
    return folder / "explorer.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_it_loads_in_silence_and_fits_the_window(browser, file, width, scheme):
    with visit(browser, file, width, color_scheme=scheme) as opened:
        assert opened.page.locator("#list .row").count() > 0
        opened.page.locator("#list summary").first.click()
        assert overflowing(opened.page) == []


@pytest.mark.parametrize("width", [390, 1440])
def test_the_columns_of_all_rows_line_up(browser, file, width):
    with visit(browser, file, width) as opened:
        opened.page.select_option("#study", "")
        edges = "(row) => [...row.children].map((cell) => cell.getBoundingClientRect().left)"
        rows = {tuple(row) for row in opened.page.evaluate(f"[...document.querySelectorAll('#list summary')].map({edges})")}
        assert len(rows) == 1


def test_a_verdict_and_a_word_filter_the_rows(browser, file):
    from playwright.sync_api import expect

    with visit(browser, file) as opened:
        page = opened.page
        page.select_option("#study", "")
        for status in ("passed", "failed", "invalid"):
            page.select_option("#status", status)
            assert set(page.evaluate(STATUSES)) == {status}
        page.click("#reset")
        expect(page.locator("#status")).to_have_value("")
        page.fill("#search", "return x * 2")
        assert set(page.evaluate(STATUSES)) <= {"passed", "wrong"}
        page.fill("#search", "no model wrote this")
        assert page.locator("#list .row").count() == 0


def test_the_slider_moves_through_training(browser, file):
    with visit(browser, file) as opened:
        page = opened.page
        page.focus("#frames-step")
        seen = []
        for key in ("Home", "ArrowRight", "ArrowRight"):
            page.keyboard.press(key)
            seen.append(page.inner_text("#frames-where").partition(" of ")[0])
        assert seen == ["1", "2", "3"]
        assert page.locator("#frames-strip [aria-current=step]").count() == 1


def test_every_control_is_reached_with_tab(browser, file):
    with visit(browser, file) as opened:
        wanted = "a[href], select:not(:disabled), input, button:not(:disabled):not([tabindex='-1']), summary, pre[tabindex='0']"
        assert tab_stops(opened.page, wanted) == ([], [])
