"""The report in a browser: it fits every window, works by keyboard and on paper, and asks nothing of the network."""

import re

import pandas as pd
import pytest

from tests.browser.conftest import overflowing, tab_stops, visit

WIDE = "[...document.querySelectorAll('.scroll')].filter((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth)"
UNLIKE = """[...document.querySelectorAll('.scroll')]
    .filter((box) => box.checkVisibility() && (box.scrollWidth > box.clientWidth) !== box.classList.contains('wide'))
    .map((box) => box.innerText.slice(0, 60))"""
VISIBLE = "[...document.querySelectorAll('#claims-table tr:has(td)')].filter((row) => row.checkVisibility())"
PARTS = "[...document.querySelectorAll('#claims-table tbody:not([hidden])')]"
A4 = round((210 - 2 * 14) / 25.4 * 96)
"""Pixels between the margins of a sheet."""


@pytest.fixture(scope="session")
def file(report):
    return report / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_it_loads_in_silence_and_fits_the_window(browser, file, width, scheme):
    with visit(browser, file, width, color_scheme=scheme) as opened:
        assert overflowing(opened.page) == []
        channels = opened.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
        assert (min(channels) > 240) if scheme == "light" else (max(channels) < 40)
        inks = opened.page.evaluate(
            "new Set([...document.querySelectorAll('figure svg')].map((one) => getComputedStyle(one).getPropertyValue('--ink'))).size"
        )
        assert inks == 1


def test_a_request_and_an_overflow_would_be_noticed(browser, tmp_path):
    (tmp_path / "page.html").write_text('<body><img src="https://example.invalid/a.png" alt=""><p style="width: 2000px">wide</p>')
    with pytest.raises(AssertionError), visit(browser, tmp_path / "page.html") as opened:
        found = overflowing(opened.page)
    assert len(found) == 2
    assert opened.requests == ["https://example.invalid/a.png"]


def test_boxes_that_scroll_say_so_and_take_the_focus(browser, file):
    with visit(browser, file, 360) as opened:
        page = opened.page
        for _ in range(50):  # the page looks at its boxes again when they change
            if page.evaluate(UNLIKE) == []:
                break
            page.wait_for_timeout(100)
        assert page.evaluate(UNLIKE) == []
        assert page.evaluate(f"{WIDE}.length") > 5
        hints = page.evaluate(f"{WIDE}.map((box) => getComputedStyle(box.querySelector('caption > span'), '::after').content)")
        assert all("scroll" in hint for hint in hints)
        assert page.evaluate(f"{WIDE}.every((box) => box.tabIndex === 0 && box.role === 'region' && box.ariaLabel)")
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        assert tab_stops(page, "a[href], button, summary, pre[tabindex], .scroll.wide") == ([], [])


def test_the_skip_link_leads_past_the_contents(browser, file):
    with visit(browser, file) as opened:
        page = opened.page
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.tagName") == "MAIN"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('section').id") == "claims"


def test_every_entry_of_the_contents_leads_to_its_section_in_order(browser, file):
    with visit(browser, file) as opened:
        targets = opened.page.evaluate("[...document.querySelectorAll('nav a')].map((link) => link.hash.slice(1))")
        assert targets == opened.page.evaluate("[...document.querySelectorAll('main > section')].map((section) => section.id)")


def test_the_filter_shows_one_verdict(browser, file, report):
    verdicts = pd.read_csv(report / "claims.csv")["verdict"]
    assert verdicts.nunique() > 1
    with visit(browser, file) as opened:
        page = opened.page
        status = page.locator(".filter [role=status]")
        for verdict, count in verdicts.value_counts().items():
            page.get_by_role("button", name=verdict, exact=True).click()
            assert page.evaluate(f"{VISIBLE}.map((row) => row.querySelector('.verdict').textContent)") == [verdict] * count
            assert status.inner_text() == f"{count} of {len(verdicts)} rows"
            assert page.locator(".filter [aria-pressed=true]").all_inner_texts() == [verdict]
            assert page.evaluate(f"{PARTS}.every((part) => part.querySelector('tr:has(td):not([hidden])'))")
        page.get_by_role("button", name="all", exact=True).click()
        assert page.evaluate(f"{VISIBLE}.length") == len(verdicts)


def test_the_heads_of_a_long_table_stay_in_sight(browser, file):
    with visit(browser, file, 768) as opened:
        box = "document.querySelector('#claims-table')"
        opened.page.evaluate(f"{box}.scrollTo(60, 700)")
        assert opened.page.evaluate(f"{box}.scrollTop") == 700
        left, top = (opened.page.evaluate(f"{box}.getBoundingClientRect().{side}") for side in ("left", "top"))
        head = opened.page.evaluate(f"{box}.querySelector('thead th:nth-child(2)').getBoundingClientRect().top")
        name = opened.page.evaluate(f"{box}.querySelector('th[scope=row]').getBoundingClientRect().left")
        assert [head - top, name - left] == pytest.approx([0, 0], abs=2)


def test_without_scripts_everything_is_there(browser, file, report):
    with visit(browser, file, java_script_enabled=False) as opened:
        assert not opened.page.locator(".filter").is_visible()
        assert opened.page.locator("#claims-table tr:has(td)").count() == len(pd.read_csv(report / "claims.csv"))
        assert opened.page.locator(".scroll:not([tabindex='0'])").count() == 0


def test_paper_shows_all_columns_in_ink_on_white(browser, file):
    with visit(browser, file, A4, color_scheme="dark") as opened:
        page = opened.page
        page.emulate_media(media="print")
        ends = page.locator("table, pre, figure svg").evaluate_all("all => all.map((one) => one.getBoundingClientRect().right)")
        assert max(ends) <= A4 + 1
        assert page.evaluate("[...document.querySelectorAll('.scroll')].every((box) => getComputedStyle(box).overflowX === 'visible')")
        assert page.evaluate("[...document.querySelectorAll('details table')].every((one) => one.checkVisibility())")
        assert not page.locator(".filter").is_visible()
        assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ink')") == "#22262b"
        sheets = len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True)))
        assert sheets >= page.locator("main > section").count()


def test_tables_begin_where_the_text_does_and_move_left_only_for_room(browser, file):
    with visit(browser, file) as opened:
        boxes = opened.page.evaluate("[...document.querySelectorAll('.scroll')].map((one) => one.getBoundingClientRect())")
        text = opened.page.evaluate("document.querySelector('main p').getBoundingClientRect().left")
        room = 0.97 * 1440
        assert len(boxes) > 5
        for box in boxes:
            assert abs(box["left"] - min(text, room - box["width"])) < 2
            assert box["left"] > 0
