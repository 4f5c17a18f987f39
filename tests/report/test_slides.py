"""The slides: self-contained, escaped, without a number of their own, and about what the recipe has."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from glint.analysis import lesson
from glint.config.load import load
from glint.config.model import PRESETS, ModelRecipe
from glint.manifest import Entry, Manifest
from glint.model.attention import visible
from glint.replication import compare
from glint.report import mechanisms, slides
from glint.report.results import Results
from glint.report.wording import points, share
from tests.report import synthetic, traces
from tests.report.test_page import Outline

TEMPLATES = Path(slides.__file__).parent / "templates"
HOSTILE = "</script><script>alert('x')</script><!-- "


@pytest.fixture(scope="session")
def taught(analysed, reported, tmp_path_factory):
    """Return a folder of the tables of the synthetic run, with a lesson whose model-written texts are hostile."""
    folder = tmp_path_factory.mktemp("taught") / "tables"
    shutil.copytree(analysed / "report", folder)
    shutil.copytree(reported / "figures", folder / "figures")
    shutil.copy(reported / "claims.csv", folder / "claims.csv")
    entries = traces.write(folder.parent, analysed / "results/manifest.json", completion=HOSTILE)
    lesson.analyse(synthetic.config(), Manifest([Entry(**entry) for entry in entries]), folder / "lesson.json")
    return folder


def rendered(folder, reveal, out, config=None):
    slides.render(config or synthetic.config(), folder, folder / "claims.csv", folder / "figures", reveal, out)
    return out.read_text()


@pytest.fixture(scope="session")
def deck(taught, reveal, tmp_path_factory):
    return rendered(taught, reveal, tmp_path_factory.mktemp("deck") / "slides.html")


@pytest.fixture
def tables(taught, tmp_path):
    return shutil.copytree(taught, tmp_path / "tables")


def sections(page):
    return re.findall(r'<section id="([\w-]+)"', page)


def config_with(**recipe):
    plan = json.loads(synthetic.config().model_dump_json())
    for section, changes in recipe.items():
        plan["recipes"]["main"][section] |= changes
    return type(synthetic.config()).model_validate_json(json.dumps(plan))


def test_nothing_comes_from_the_network(deck):
    outline = Outline(deck)
    assert all(link.startswith(("#", "data:")) for link in outline.links)
    assert not re.search(r"url\((?!#)|@import", deck)


def test_elements_close_and_ids_are_unique(deck):
    outline = Outline(deck)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))


def test_about_twenty_slides_each_with_notes(deck):
    slides_of_the_deck = re.findall(r"<section.*?</section>", deck, re.DOTALL)
    assert 19 <= len(slides_of_the_deck) == len(sections(deck)) <= 24
    for slide in slides_of_the_deck:
        assert re.search(r'<aside class="notes">[^<]{60,}', slide), slide[:60]


def test_no_number_is_written_in_a_template():
    """What a reader sees as a number comes through an expression; tags and attributes are geometry."""
    for path in sorted((TEMPLATES / "slides").glob("*.html")):
        template = re.sub(r"{{.*?}}|{%.*?%}", "", path.read_text(), flags=re.DOTALL)
        shown = re.sub(r"<[^>]*>", "", template)
        assert not re.search(r"\d", shown), f"{path.name}: {re.findall('.*[0-9].*', shown)}"


def test_the_headline_is_the_estimate(taught, deck):
    results = Results(taught, taught / "claims.csv")
    text = Outline(deck).text
    before, after, gain = (results.estimate("targets", "greedy_pass1", phase)["estimate"] for phase in ("before", "after", "gain"))
    for number in (share(before), share(after), points(gain)):
        assert number.replace("\u202f", " ") in text


def test_the_arithmetic_on_the_slide_is_that_of_the_group(deck):
    rewards = traces.REWARDS[1]
    others = (sum(rewards) - rewards[0]) / (len(rewards) - 1)
    assert f"1 − (0.9 − 1) / 3 = {rewards[0] - others:+.3f}" in Outline(deck).text


def test_texts_of_a_model_are_shown_never_run(deck):
    assert deck.count("</script>") == 3
    assert deck.count("<script") == 3 + 1  # inside the text of the stand-in of the notes plugin, which does not end its element
    assert "&lt;/script&gt;&lt;script&gt;alert(&#39;x&#39;)" in deck
    assert "const Reveal = '<\\/script>'" in deck
    assert "const RevealNotes = '<\\!-- <script>'" in deck


def test_the_encoder_has_the_offset_of_the_tokenizer(deck):
    assert 'data-offset="4"' in deck
    assert "<b>\\xc3</b><span>195</span><i>199</i>" in deck


def test_a_dense_model_has_no_slide_of_what_it_lacks(tables, reveal, tmp_path):
    without = json.loads((tables / "lesson.json").read_text()) | {"routing": None}
    (tables / "lesson.json").write_text(json.dumps(without))
    dense = load({"run": "one", "recipes": {"main": {"model": "dense"}}, "studies": synthetic_main()})
    found = sections(rendered(tables, reveal, tmp_path / "slides.html", dense))
    assert "positions" in found
    assert not {"linear", "experts", "streams"} & set(found)


def test_the_real_mechanisms_are_worded_as_what_they_are(tables, reveal, tmp_path):
    faithful = load({"run": "one", "recipes": {"main": {"model": "faithful"}}, "studies": synthetic_main()})
    text = Outline(rendered(tables, reveal, tmp_path / "slides.html", faithful)).text
    for words in ("the delta rule", "an indexer chooses", "each sum to one"):
        assert words in text


def synthetic_main():
    return {"main": json.loads(synthetic.config().model_dump_json())["studies"]["main"]}


@pytest.mark.parametrize("rule", ["group_mean", "group_normalised", "none"])
def test_every_baseline_has_its_words(tables, reveal, tmp_path, rule):
    text = Outline(rendered(tables, reveal, tmp_path / "slides.html", config_with(rl={"baseline": rule}))).text
    assert "Leave one out" not in text


def test_what_the_seed_lacks_has_no_slide(tables, reveal, tmp_path):
    nothing = json.loads((tables / "lesson.json").read_text()) | dict.fromkeys(("task", "group", "next_bytes", "routing"))
    (tables / "lesson.json").write_text(json.dumps(nothing))
    (tables / "example.json").write_text("null")
    found = sections(rendered(tables, reveal, tmp_path / "slides.html"))
    assert not {"task", "advantage", "next-byte", "experts", "example"} & set(found)


def test_a_run_without_claims_shows_none(tables, reveal, tmp_path):
    compare(synthetic.config(), None, tables, tables / "claims.csv")
    page = rendered(tables, reveal, tmp_path / "slides.html")
    assert "claims" not in sections(page)
    assert "Diamonds" not in page


def test_one_seed_has_no_interval(tables, reveal, tmp_path):
    estimates = pd.read_csv(tables / "estimates.csv")
    estimates[["low", "high"]] = float("nan")
    estimates["n_seeds"] = 1
    estimates.to_csv(tables / "estimates.csv", index=False)
    text = Outline(rendered(tables, reveal, tmp_path / "slides.html")).text
    assert "no interval from one seed" in text
    assert not re.search(r"\bnan\b", text)


def test_a_control_that_gains_is_called_a_failure(tables, reveal, tmp_path):
    estimates = pd.read_csv(tables / "estimates.csv")
    estimates.loc[(estimates["arm"] == "shuffled") & (estimates["phase"] == "gain"), ["low", "high"]] = [0.1, 0.2]
    estimates.to_csv(tables / "estimates.csv", index=False)
    assert "the control failed" in rendered(tables, reveal, tmp_path / "slides.html")


def test_the_same_files_give_the_same_slides(taught, reveal, deck, tmp_path):
    assert rendered(taught, reveal, tmp_path / "slides.html") == deck


def test_without_reveal_one_sentence_names_the_command(taught, tmp_path):
    with pytest.raises(ValueError, match=r"reveal.css is missing, .*`make install` brings reveal.js"):
        rendered(taught, tmp_path / "nowhere", tmp_path / "slides.html")
    assert not (tmp_path / "slides.html").exists()


@pytest.mark.parametrize(("window", "stride", "context"), [(32, 32, 192), (8, 12, 160), (24, 16, 40)])
def test_the_drawn_positions_are_those_that_the_model_sees(window, stride, context):
    seen = mechanisms.seen(ModelRecipe(window=window, stride=stride, context=context))
    assert seen is not None
    positions = torch.arange(seen.length)
    mask = visible(positions, positions, window, stride)
    assert list(seen.last) == mask[-1].nonzero().squeeze(1).tolist()
    drawn = (positions[:, None] >= positions) & (
        (positions[:, None] - positions < seen.window) | torch.isin(positions, torch.tensor(seen.columns))
    )
    assert torch.equal(drawn, mask)


def test_the_rhythm_is_three_to_one():
    assert mechanisms.rhythm(ModelRecipe())[:4] == ["linear", "linear", "linear", "sparse"]
    assert set(mechanisms.rhythm(PRESETS["dense"])) == {"sparse"}


def test_memory_by_hand():
    assert mechanisms.memory(ModelRecipe()) == [(48, 6336, 18432), (96, 6336, 36864), (192, 6336, 73728)]  # 6 heads of 32: 6 * 32 * 33
    assert mechanisms.memory(PRESETS["faithful"])[0][1] == 4 * 64 * 64


@pytest.mark.parametrize(("token", "shown"), [(0, "pad"), (4 + ord("a"), "a"), (4 + ord(" "), "␣"), (4 + 0xE9, "\\xe9"), (4, "\\x00")])
def test_a_token_can_be_seen(token, shown):
    assert slides.glyph(token) == shown
