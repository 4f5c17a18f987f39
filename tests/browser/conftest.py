"""One headless Chromium, and the pages of a made-up run that has every section."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from glint.analysis import analyse, expressions, vision
from glint.manifest import Manifest
from glint.replication import compare
from glint.report.figures import draw
from glint.report.page import render
from tests.report import architecture_tables, synthetic
from tests.report.conftest import CLAIMS, MUTATION

HONESTY = """study,arm,seed,phase,family,mode,stop,completions,rewarded,property_failed,ignores_argument,holds_test_value
main,published,42,after,increment,greedy,parses,8,7,0,0,1
main,published,42,after,canary,greedy,parses,8,0,0,0,0
"""
"""Counts of the audit, which takes longer than all the pages."""
REQUIRED = "GLINT_BROWSER_TESTS"
"""Where this variable is set, a missing Chromium is an error."""


@pytest.fixture(scope="session")
def browser():
    program = shutil.which("chromium")
    if program is None:
        say = pytest.fail if os.environ.get(REQUIRED) else pytest.skip
        say("The pages are not tried in a browser: there is no program chromium here; Debian's package chromium has it.")
    from playwright.sync_api import sync_playwright  # a second of imports, in every process that collects tests

    flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's own sandbox refuses to run as root
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """Return the folder of `report.html` and the tables behind it; few draws of the bootstrap, for no test reads an interval."""
    root = tmp_path_factory.mktemp("pages")
    folder, config = root / "report", synthetic.config(resamples=10)
    manifest = Manifest.load(synthetic.write(root / "results", missing=[("shuffled", 46)]))
    analyse(config, root / "results/manifest.json", folder)
    expressions.analyse(config, manifest, folder)
    vision.analyse(config, manifest, folder)
    architecture_tables.write(folder)
    (folder / "honesty.csv").write_text(HONESTY)
    (folder / "mutation.csv").write_text(MUTATION)
    compare(config, CLAIMS, folder, folder / "claims.csv")
    draw(folder, folder / "claims.csv", folder / "figures")
    render(architecture_tables.config(), folder, folder / "claims.csv", folder / "figures", folder / "report.html")
    return folder


class Visit:
    """An open page, and what it should not have done: `complaints` in the console, `requests` to anywhere but files."""

    def __init__(self, page):
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.route("**/*", self._allow)

    def _allow(self, route):
        if route.request.url.startswith(("file:", "data:")):
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()


@contextmanager
def visit(browser, file: Path, width=1440, place="", **options):
    """Open `file` at `place` (`#/7`) in a window of its own, `width` pixels wide; the visit must end without complaints and requests."""
    context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce", **options)
    try:
        visited = Visit(context.new_page())
        visited.page.goto(file.as_uri() + place)
        yield visited
        assert (visited.complaints, visited.requests) == ([], [])
    finally:
        context.close()


def overflowing(page):
    """Return what stands out of the window to the right and is in no box that scrolls, as opening tags."""
    return page.evaluate(
        """() => {
          const scrolls = (one) => getComputedStyle(one).overflowX !== "visible";
          const boxed = (one) => one && one !== document.body && (scrolls(one) || boxed(one.parentElement));
          const stands_out = (one) => one.getClientRects().length && one.getBoundingClientRect().right > innerWidth + 1;
          const out = [...document.body.querySelectorAll("*")].filter((one) => stands_out(one) && !boxed(one.parentElement));
          const width = document.documentElement.scrollWidth;
          return [...out.map((one) => one.cloneNode(false).outerHTML), ...(width > innerWidth ? [`the page: ${width}`] : [])];
        }"""
    )


def tab_stops(page, selector, limit=400):
    """Press Tab until it has been everywhere; return the elements of `selector` that it never reached, and the stops without an outline."""
    page.evaluate("document.activeElement.blur(); window.met = new Set(); window.bare = []")
    for _ in range(limit):
        page.keyboard.press("Tab")
        again = page.evaluate(
            """() => {
              const one = document.activeElement;
              if (one === document.body || met.has(one)) return true;
              met.add(one);
              if (getComputedStyle(one).outlineStyle === "none") bare.push(one.cloneNode(false).outerHTML);
              return false;
            }"""
        )
        if again:
            break
    unmet = """(selector) => [...document.querySelectorAll(selector)].filter((one) => one.checkVisibility() && !met.has(one))
      .map((one) => one.cloneNode(false).outerHTML)"""
    return page.evaluate(unmet, selector), page.evaluate("bare")
