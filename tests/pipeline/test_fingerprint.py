"""A fingerprint changes when, and only when, something changes that the script executes."""

import sys
import textwrap

import pytest

from pipeline.fingerprint import Code, command_hash

FILES = {
    "glint/__init__.py": '"""A package."""\n',
    "glint/base.py": "LIMIT = 3\n",
    "glint/train/__init__.py": "",
    "glint/train/loop.py": "from glint.base import LIMIT\n\n\ndef loop():\n    return LIMIT\n",
    "glint/report/__init__.py": "",
    "glint/report/page.py": "def page():\n    return 1\n",
    "glint/report/templates/page.html": "<p>text</p>\n",
    "workflow/pipeline/__init__.py": "",
    "workflow/pipeline/job.py": "def job():\n    return 1\n",
    "workflow/scripts/train.py": "from glint.train.loop import loop\nfrom pipeline.job import job\n\nloop()\n",
    "workflow/scripts/report.py": "from glint.report import page\n\npage.page()\n",
}
SCRIPTS = ("train", "report")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A small checkout of its own, with two scripts."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "workflow"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for package in ("glint", "pipeline"):
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
    return tmp_path


def prints(checkout):
    code = Code(checkout)
    return {name: code.fingerprint(checkout / f"workflow/scripts/{name}.py") for name in SCRIPTS}


def edited(checkout, name, text):
    """Return the scripts whose fingerprint changes when `name` is given `text`."""
    before = prints(checkout)
    (checkout / name).write_text(textwrap.dedent(text))
    return {script for script, value in prints(checkout).items() if value != before[script]}


@pytest.mark.parametrize(
    ("name", "text", "scripts"),
    [
        ("glint/base.py", "LIMIT = 4\n", {"train"}),
        ("glint/base.py", '"""Limits."""\n\n# three\nLIMIT = (\n    3\n)\n"""The limit."""\n', set()),
        ("glint/train/loop.py", 'from glint.base import LIMIT\n\n\ndef loop():\n    """Loop."""\n    return LIMIT  # the limit\n', set()),
        ("glint/train/loop.py", "from glint.base import LIMIT\n\n\ndef loop():\n    return LIMIT + 1\n", {"train"}),
        ("glint/__init__.py", "VERSION = 1\n", {"train", "report"}),
        ("glint/train/__init__.py", "import math\n", {"train"}),
        ("glint/report/page.py", "def page():\n    return 2\n", {"report"}),
        ("glint/report/templates/page.html", "<p>other</p>\n", {"report"}),
        ("workflow/pipeline/job.py", "def job():\n    return 2\n", {"train"}),
        ("workflow/scripts/report.py", "from glint.report import page\n\nprint(page.page())\n", {"report"}),
    ],
)
def test_an_edit_changes_the_scripts_that_run_it(checkout, name, text, scripts):
    assert edited(checkout, name, text) == scripts


def test_a_new_import_brings_in_what_it_loads(checkout):
    assert edited(checkout, "glint/report/page.py", "import glint.base\n\n\ndef page():\n    return glint.base.LIMIT\n") == {"report"}
    assert edited(checkout, "glint/base.py", "LIMIT = 5\n") == {"train", "report"}


def test_what_is_imported_but_not_used_does_not_count(checkout):
    (checkout / "glint/extra.py").write_text("import glint.deep\n")
    (checkout / "glint/deep.py").write_text("DEPTH = 1\n")
    (checkout / "glint/train/loop.py").write_text("import glint.extra\nfrom glint.base import LIMIT\n\n\ndef loop():\n    return LIMIT\n")
    script, unused = checkout / "workflow/scripts/train.py", frozenset({"glint.extra"})
    assert Code(checkout).closure(script) - Code(checkout).closure(script, unused) == {"glint.extra", "glint.deep"}
    before = Code(checkout).fingerprint(script), Code(checkout).fingerprint(script, unused)
    for name in ("extra", "deep"):
        (checkout / f"glint/{name}.py").write_text("DEPTH = 2\n")
        after = Code(checkout).fingerprint(script), Code(checkout).fingerprint(script, unused)
        assert after[0] != before[0]
        assert after[1] == before[1]


def test_layout_of_a_command_means_nothing():
    assert command_hash("--a 1\n   --b 2") == command_hash("--a 1 --b 2")
    assert command_hash("--a 1 --b 2") != command_hash("--a 1 --b 3")


def test_what_is_remembered_changes_no_fingerprint(checkout):
    memory = checkout / "memory/trees.json"
    script = checkout / "workflow/scripts/train.py"
    first = Code(checkout, memory)
    fresh = first.fingerprint(script)
    first.trees.remember()
    assert Code(checkout, memory).fingerprint(script) == Code(checkout).fingerprint(script) == fresh
    (checkout / "glint/base.py").write_text("LIMIT = 4\n")
    assert Code(checkout, memory).fingerprint(script) == Code(checkout).fingerprint(script) != fresh


def test_a_damaged_memory_is_none(checkout):
    memory = checkout / "trees.json"
    script = checkout / "workflow/scripts/train.py"
    memory.write_text('{"3.11')
    code = Code(checkout, memory)
    assert code.fingerprint(script) == Code(checkout).fingerprint(script)
    code.trees.remember()
    assert Code(checkout, memory).trees.known == code.trees.used
