"""What `snakemake --report` shows: every table, figure, card and picture, each with a caption of one sentence that exists."""

import re
from pathlib import Path

from tests.pipeline.checkout import ROOT

CAPTIONS = ROOT / "rules/captions"
RULES = {path.name: path.read_text() for path in sorted((ROOT / "rules").glob("*.smk"))}


def lists():
    """Return the lists of names that the rules hold, by the name of the list."""
    found = re.findall(r"^(\w+) \+?= (\[[^\]]*\])$", "\n".join(RULES.values()), re.MULTILINE)
    names: dict[str, list[str]] = {}
    for name, text in found:
        names.setdefault(name, []).extend(re.findall(r'"([\w.]+)"', text))
    return names


def marked():
    """Return the captions that the rules name, as category and name."""
    text, names = "\n".join(RULES.values()), lists()
    for path, category, caption in re.findall(r'reported\(f"([^"]+)", "(\w+)"(?:, "(\w+)")?', text):
        folder = category.lower()
        loop = re.search(rf'reported\(f"{re.escape(path)}", "{category}"[^)]*\) for name in (\w+)\]', text)
        if caption:
            yield folder, caption
        elif loop is None:
            yield folder, Path(path).stem
        else:
            every = re.findall(rf'reported\(f"{re.escape(path)}", "{category}"\) for name in (\w+)\]', text)
            yield from ((folder, Path(name).stem) for one in every for name in names[one])


def test_every_item_has_its_caption_and_every_caption_its_item():
    there = {(path.parent.name, path.stem) for path in CAPTIONS.rglob("*.rst")}
    assert set(marked()) == there
    assert {folder for folder, _ in there} == {"tables", "figures", "page", "cards", "share"}


def test_a_caption_is_one_sentence():
    for path in CAPTIONS.rglob("*.rst"):
        text = path.read_text().strip()
        assert text.endswith("."), path
        assert "\n" not in text, path
        assert not re.search(r"\.\s+[A-Z]", text), path


def test_every_table_of_the_data_dictionary_is_shown():
    described = set(re.findall(r"^\| `(\w+)\.(?:csv|json)` \|", (ROOT / "reports/README.md").read_text(), re.MULTILINE))
    assert described == {path.stem for path in (CAPTIONS / "tables").glob("*.rst")}
