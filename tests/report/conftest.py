"""One analysed, compared and rendered synthetic run for the tests that only read it."""

from pathlib import Path

import pytest

from glint.analysis import analyse, architecture, expressions, recall, vision
from glint.audit import audit
from glint.manifest import Manifest
from glint.replication import compare
from glint.report.figures import draw
from glint.report.page import render
from tests.report import synthetic

CLAIMS = Path(__file__).parents[2] / "config" / "claims.yaml"
MUTATION = "family,mutants,killed,rewarded,survivors\nincrement,13,13,1,\neven,17,17,2,\n"


@pytest.fixture(scope="session")
def analysed(tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    manifest = synthetic.write(root / "results", missing=[("shuffled", 46)])
    analyse(synthetic.config(), manifest, root / "report")
    expressions.analyse(synthetic.config(), Manifest.load(manifest), root / "report")
    vision.analyse(synthetic.config(), Manifest.load(manifest), root / "report")
    recall.analyse(synthetic.config(), Manifest.load(manifest), root / "report")
    architecture.analyse(synthetic.config(), Manifest.load(manifest), root / "report")
    audit(synthetic.config(), Manifest.load(manifest), root / "report/honesty.csv")
    (root / "report/mutation.csv").write_text(MUTATION)
    return root


@pytest.fixture(scope="session")
def reported(analysed, tmp_path_factory):
    """Return the folder of `claims.csv`, `figures/` and `report.html` of that run."""
    folder = tmp_path_factory.mktemp("reported")
    compare(synthetic.config(), CLAIMS, analysed / "report", folder / "claims.csv")
    draw(analysed / "report", folder / "claims.csv", folder / "figures")
    render(synthetic.config(), analysed / "report", folder / "claims.csv", folder / "figures", folder / "report.html")
    return folder


@pytest.fixture(scope="session")
def reveal(tmp_path_factory):
    """Return a folder with the names of reveal.js and code that would end a script element."""
    folder = tmp_path_factory.mktemp("reveal.js")
    (folder / "dist/plugin").mkdir(parents=True)
    (folder / "dist/reveal.css").write_text(".reveal { margin: 0 }")
    (folder / "dist/reveal.js").write_text("const Reveal = '</script>'")
    (folder / "dist/plugin/notes.js").write_text("const RevealNotes = '<!-- <script>'")
    return folder
