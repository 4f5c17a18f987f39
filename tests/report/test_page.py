"""The page: self-contained, complete, escaped, and worded after the results."""

import json
import re
import shutil
from html.parser import HTMLParser

import pandas as pd
import pytest

from glint.config.load import load
from glint.replication import compare
from glint.report.page import render
from glint.report.results import Results
from glint.report.tables import change
from glint.report.wording import points, share
from tests.report import synthetic

VOID = {"meta", "link", "br", "wbr", "img", "hr", "input"}


class Outline(HTMLParser):
    """Collect tags, ids, links and text; every element that opens must close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.links, self.words = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values[name] for name in ("href", "src", "xlink:href") if name in values]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.words))


@pytest.fixture(scope="session")
def page(reported):
    return (reported / "report.html").read_text()


def rendered(folder, reported, out, config=None):
    render(config or synthetic.config(), folder, reported / "claims.csv", reported / "figures", out)
    return out.read_text()


@pytest.fixture
def tables(analysed, tmp_path):
    return shutil.copytree(analysed / "report", tmp_path / "tables")


def test_nothing_comes_from_the_network(page):
    outline = Outline(page)
    assert {link for link in outline.links if not link.startswith(("#", "data:"))} == {"explorer.html"}
    assert outline.tags.count("script") == 1
    assert "default-src 'none'" in page  # the browser holds the page to it
    assert not re.search(r"url\((?!#)|@import", page)


def test_elements_close_ids_are_unique_and_links_arrive(page):
    outline = Outline(page)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert {link[1:] for link in outline.links if link.startswith("#")} <= set(outline.ids)


def test_the_headline_is_the_estimate(analysed, reported, page):
    results = Results(analysed / "report", reported / "claims.csv")
    before, after, gain = (results.estimate("targets", "greedy_pass1", phase)["estimate"] for phase in ("before", "after", "gain"))
    text = Outline(page).text
    for number in (share(before), share(after), points(gain), points(16 / 24)):
        assert number.replace("\u202f", " ") in text


def test_every_claim_and_every_seed_has_its_row(reported, page):
    rows = re.findall(r'<th scope="row">(.*?)</th>', page.replace("<wbr>", ""))
    for claim in pd.read_csv(reported / "claims.csv")["id"]:
        assert sum(f"<code>{claim}</code>" in row for row in rows) == 1
    for arm in ("published", "shuffled"):
        for seed in synthetic.SEEDS:
            assert f"{arm}, {seed}" in rows


def test_replicated_figures_that_hardly_any_value_could_miss_are_counted(tables, reported, tmp_path):
    claims = pd.read_csv(reported / "claims.csv")
    counts = claims.index[(claims["rule"] == "count") & claims["low"].notna()]
    for rows, (low, high) in ((counts, (0.4, 0.6)), (counts[:3], (0.1, 1.0))):
        claims.loc[rows, "low"], claims.loc[rows, "high"] = low, high
    claims.loc[counts, "verdict"] = "replicated"
    claims.to_csv(tmp_path / "claims.csv", index=False)
    render(synthetic.config(), tables, tmp_path / "claims.csv", reported / "figures", tmp_path / "page.html")
    text = Outline((tmp_path / "page.html").read_text()).text
    assert "; 3 of the replicated lie in intervals that few values could miss" in text
    assert f"of {len(counts)} replicated figures of this kind 3 lie in intervals of 80 points or more" in text


def test_a_missing_seed_is_named(page):
    text = Outline(page).text
    assert "Seeds without a result: main/shuffled seed 46." in text


def test_a_sound_control_includes_zero(page):
    assert "which includes zero." in page


def test_a_control_that_gains_is_called_a_failure(tables, reported, tmp_path):
    estimates = pd.read_csv(tables / "estimates.csv")
    gained = (estimates["arm"] == "shuffled") & (estimates["phase"] == "gain")
    estimates.loc[gained, ["low", "high"]] = [0.1, 0.2]
    estimates.to_csv(tables / "estimates.csv", index=False)
    assert "excludes zero: the control failed" in rendered(tables, reported, tmp_path / "page.html")


def test_completions_are_shown_as_text_never_as_markup(tables, reported, tmp_path):
    example = json.loads((tables / "example.json").read_text()) | {"completion_after": "<script>alert(1)</script>"}
    (tables / "example.json").write_text(json.dumps(example))
    page = rendered(tables, reported, tmp_path / "page.html")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("<script") == 1  # the page's own


def test_without_a_complete_first_seed_there_is_no_example(tables, reported, tmp_path):
    (tables / "example.json").write_text("null")
    assert "The first seed has no complete result." in rendered(tables, reported, tmp_path / "page.html")


def test_a_run_without_claims_has_no_such_section_nor_a_link_to_it(analysed, reported, tmp_path):
    compare(synthetic.config(), None, analysed / "report", tmp_path / "claims.csv")
    render(synthetic.config(), analysed / "report", tmp_path / "claims.csv", reported / "figures", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    outline = Outline(page)
    assert "claims" not in outline.ids
    assert "#claims" not in outline.links
    assert "data" in outline.ids
    assert "published gain" not in page


def test_an_arm_with_several_changes_shows_its_reason(tables, reported, tmp_path):
    arm = {"rl": {"shuffle_rewards": True, "lr": 0.0001}, "several_changes": "a faster control"}
    plan = json.loads(synthetic.config().model_dump_json())
    plan["studies"]["main"]["arms"]["shuffled"] = arm
    config = type(synthetic.config()).model_validate_json(json.dumps(plan))
    text = Outline(rendered(tables, reported, tmp_path / "page.html", config)).text
    assert "main/shuffled (rl.shuffle_rewards: true, rl.lr: 0.0001 (several changes: a faster control))" in text


def test_an_arm_that_names_a_preset_shows_what_differs_alone():
    arm = {"model": {"preset": "dense", "context": 192}, "several_changes": "another model"}
    study = {"question": "Which?", "arms": {"published": {}, "dense": arm}, "seeds": [1]}
    config = load({"run": "one", "recipes": {"main": {}}, "studies": {"main": study}})
    text = change(config, "main", "dense")
    assert text.startswith('model.linear: "none", model.sparse: "dense", model.residual: "single", model.ffn: "dense", ')
    assert text.endswith("(several changes: another model)")
    assert set(re.findall(r"model\.(\w+)", text)) == {"linear", "sparse", "residual", "ffn", "width", "layers", "heads", "ffn_hidden"}
    assert change(config, "main", "published") == "the base recipe"


def test_the_same_files_give_the_same_page(analysed, reported, page, tmp_path):
    assert rendered(analysed / "report", reported, tmp_path / "page.html") == page


def test_one_seed_gives_no_interval_and_the_page_says_so(tables, reported, tmp_path):
    estimates = pd.read_csv(tables / "estimates.csv")
    estimates[["low", "high"]] = float("nan")
    estimates["n_seeds"] = 1
    estimates.to_csv(tables / "estimates.csv", index=False)
    text = Outline(rendered(tables, reported, tmp_path / "page.html")).text
    assert "In arm published, over 1 training seed and 24 unseen tasks" in text
    assert "no interval from one seed." in text
    assert "the control failed" not in text
    assert not re.search(r"\bnan\b", text)
