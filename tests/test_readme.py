"""The README quotes what the reference run's tables, the bench rows and the drawn DAG say, and names files that exist."""

import re
import runpy

from tests.pipeline.checkout import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SCRIPT = runpy.run_path(str(ROOT / "workflow/scripts/quote_results.py"))


def test_every_quoted_number_is_that_of_the_reference_run() -> None:
    assert SCRIPT["quoted"](README) == README


def test_a_number_that_was_edited_by_hand_is_noticed() -> None:
    block = SCRIPT["headline"](SCRIPT["REFERENCE"])
    digit = re.search(r"\d", block)
    assert digit is not None
    changed = README.replace(block, block[: digit.start()] + str((int(digit[0]) + 1) % 10) + block[digit.end() :])
    assert changed != README
    assert SCRIPT["quoted"](changed) == README


def test_every_linked_file_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_target_of_make_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"\bmake ([a-z]+)", README))
    assert {"reproduce", "test", "quick", "bench"} <= named
    assert [target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
