"""The cards: every number from a result file or the config, every hash that of a file, headings and metadata of the field."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from glint.config.corpus import CorpusJob, CorpusRecipe
from glint.config.load import load
from glint.config.tree import resolve
from glint.files import write_json, write_text
from glint.report import data_card, honesty, model_card
from glint.report.results import Results
from glint.report.wording import interval, points, share, whole
from glint.tasks import corpus
from glint.tasks.families import family_named
from pipeline.plan import Plan

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "reports/reference/published"
CONFIG = load(ROOT / "config/published.yaml")
SEEDS = (7, 8)
RECIPE = CorpusRecipe(
    families=("even", "reverse"),
    pretrain_examples=1100,
    rl_tasks_per_family=3,
    dev_tasks_per_family=2,
    confirm_tasks_per_family=4,
    final_tasks_per_family=1,
)


def sha(text):
    return f"{abs(hash(text)):064x}"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A working directory with the files that lie beside the checkpoints of the published main study, and two small corpora."""
    root = tmp_path_factory.mktemp("cards")
    manifest = Plan(CONFIG).manifest()
    write_json(root / "manifest.json", manifest)
    for entry in (entry for entry in manifest if entry["study"] == "main"):
        folder = root / Path(entry["path"]).parent
        if entry["role"] == "selection":
            write_json(root / entry["path"], {"checkpoint": "step-0120" if entry["seed"] == 43 else "step-0100"})
        elif entry["role"] == "pretrain_receipt":
            names = [f"{step}/model.safetensors" for step in ("step-0100", "step-0120")]
            write_json(folder / "weights.json", {name: sha(f"{folder}{name}") for name in names})
        elif entry["role"] == "rl_receipt":
            write_json(folder / "weights.json", {"groups-096/model.safetensors": sha(f"{folder}")})
    for seed in SEEDS:
        examples = corpus.draw_examples(RECIPE, seed)
        write_json(root / f"corpus/{seed}/data_card.json", corpus.data_card(examples, corpus.tokenise(examples)))
        write_text(root / f"corpus/{seed}/recipe.json", CorpusJob(corpus=RECIPE, seed=seed).model_dump_json())
    return root


@pytest.fixture(scope="module")
def model(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        model_card.render(CONFIG, TABLES, TABLES / "claims.csv", root / "manifest.json", root / "model_card.md")
    return (root / "model_card.md").read_text()


@pytest.fixture(scope="module")
def data(root):
    data_card.render(CONFIG, [root / f"corpus/{seed}" for seed in SEEDS], TABLES / "example.json", root / "data_card.md")
    return (root / "data_card.md").read_text()


def parts(card):
    """Return the metadata and the text of a card."""
    _, metadata, text = card.split("---\n", 2)
    return yaml.safe_load(metadata), text


def cells(card, first, second=""):
    """Return the cells of the only row of a table that begins so."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in card.splitlines() if line.startswith("| ")]
    (row,) = [row for row in rows if row[0] == first and (not second or row[1] == second)]
    return row


def numbers(text):
    """Return the numbers outside of code and of names."""
    prose = re.sub(r"```.*?```|`[^`]*`", " ", text, flags=re.DOTALL)
    return set(re.findall(r"(?<![\w.-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w])", prose))


def written(values):
    forms = [(f"{abs(v):,.0f}", f"{abs(v):.1f}", f"{100 * abs(v):.1f}", f"{v:.3g}", f"{v:g}", f"{100 * v:g}") for v in values]
    return {form for each in forms for form in each}


def leaves(node):
    if isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else node:
            yield from leaves(value)
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield node


def known(results):
    """Return the numbers that the model card may hold: the settings, the tables of its study, and what the other tables found."""
    front = results.estimates.query("study == 'main' and stop == 'parses'")
    front = front[front["scope"].isin(["targets"]) | front["metric"].isin(["sampled_exact", "invalid_sampled"])]
    columns = ["estimate", "low", "high", "n_seeds", "n_tasks", "n_completions", "p_floor"]
    other = [pd.read_csv(TABLES / f"{name}.csv")[["estimate", "low", "high", "n_seeds"]] for name in ("contrasts", "vision_contrasts")]
    compared = results.estimates.query("phase == 'gain_over_base' and scope == 'targets' and metric == 'greedy_pass1'")
    values = [front[columns].to_numpy().ravel(), results.of_study("constants")["value"], compared[columns[:4]].to_numpy().ravel()]
    values += [frame.to_numpy().ravel() for frame in other] + [list(honesty.totals(results).values())]
    made_of = resolve(CONFIG, "main", "published").model
    layers = Counter(made_of.attention(layer) for layer in range(made_of.layers)).values()
    settings = [*leaves(json.loads(CONFIG.model_dump_json())), *layers]
    texts = numbers((TABLES / "provenance.json").read_text()) | numbers(" ".join(study.question for study in CONFIG.studies.values()))
    return written(value for each in [*values, settings] for value in each if value == value) | texts


def test_every_number_of_the_model_card_is_a_result_or_a_setting(model):
    results = Results(TABLES, TABLES / "claims.csv")
    _, text = parts(model)
    counts = {str(count) for count in range(8)}  # of comparisons: each is counted in tests of the findings
    names = {"256"}  # SHA-256
    versions = set(re.findall(r"\d+\.\d+(?:\.\d+)?", (TABLES / "provenance.json").read_text()))
    unexplained = numbers(text.partition("## Versions")[0]) - known(results) - counts - names
    assert unexplained == set()
    assert len(numbers(text)) > 60
    assert "41.37" in numbers(text + " and 41.37 more") - known(results)
    assert set(re.findall(r"\d+\.\d+(?:\.\d+)?", text.partition("## Versions")[2])) == versions


def test_every_outcome_of_every_arm_stands_in_its_row(model):
    table = pd.read_csv(TABLES / "estimates.csv").query("study == 'main' and stop == 'parses' and scope == 'targets'")
    table = table[table["method"].str.endswith("tasks within families")].set_index(["arm", "metric", "phase"])
    for arm in ("published", "shuffled"):
        keys: list[Any] = [(arm, "greedy_pass1", phase) for phase in ("before", "after", "gain")]
        before, after, gain = (table.loc[key] for key in keys)
        row = cells(model, arm, "greedy answer passes")
        assert row[2:4] == [f"{share(one['estimate'])} {interval(one['low'], one['high'])}" for one in (before, after)]
        assert row[4] == f"{points(gain['estimate'])} {interval(gain['low'], gain['high'], signed=True)}"
        assert row[5:] == [whole(gain[name]) for name in ("n_seeds", "n_tasks", "n_completions")]


def test_sizes_are_those_of_the_tables(model):
    constants = pd.read_csv(TABLES / "constants.csv").query("study == 'main' and arm == 'published' and seed == 42").set_index("name")
    row = cells(model, "published", "the base recipe")
    assert row[2:] == [whole(constants["value"].to_dict()[name]) for name in model_card.COUNTS]


def test_metadata_are_those_of_a_model_hub(model):
    metadata, _ = parts(model)
    assert {"license", "language", "pipeline_tag", "library_name", "tags", "model-index"} == metadata.keys()
    (index,) = metadata["model-index"]
    (result,) = index["results"]
    assert result["dataset"]["split"] == CONFIG.studies["main"].split
    results = Results(TABLES, TABLES / "claims.csv")
    assert {one["type"]: one["value"] for one in result["metrics"]} == {
        metric: results.estimate("targets", metric, "after")["estimate"] for metric in results.headline
    }


def test_headings_are_those_of_model_cards(model):
    headings = re.findall(r"^## (.+)$", model, re.MULTILINE)
    assert headings[:10] == [
        "Model details",
        "Intended use",
        "Factors",
        "Metrics",
        "Evaluation data",
        "Training data",
        "Quantitative analyses",
        "Ethical considerations",
        "Caveats and recommendations",
        "Checkpoints",
    ]


def test_every_checkpoint_has_its_path_and_hash(model, root):
    listed = dict(re.findall(r"`(results/\S+\.safetensors)` \| `(\w{64})`", model))
    assert len(listed) == 5 + 2 * 5  # starts are shared by the arms
    for path, digest in listed.items():
        folder, _, name = path.partition("/checkpoints/")
        assert json.loads((root / folder / "weights.json").read_text())[name] == digest
    assert sum("/step-0120/" in path for path in listed) == 1  # the start that was selected, seed by seed


def test_every_other_study_is_told_with_a_link_to_its_summary(model):
    assert set(re.findall(r"\(share/(\w+)\.md\)", model)) == set(CONFIG.studies) - {"main"}


def test_counts_of_the_data_card_are_those_of_the_corpus(data):
    each = {"pretrain": 550, "rl": 3, "dev": 2, "confirm": 4, "final": 1, "canary": 0}
    for family in RECIPE.families:
        assert cells(data, family, "550")[1:] == [str(each[split]) for split in corpus.SPLITS]
    assert cells(data, "canary")[1:] == [*"00000", "4"]
    assert cells(data, "all")[1:] == ["1,100", "6", "4", "8", "2", "4"]


def test_hashes_and_tokens_of_every_seed_are_those_of_its_corpus(data, root):
    for seed in SEEDS:
        card = json.loads((root / f"corpus/{seed}/data_card.json").read_text())
        row = cells(data, str(seed))
        assert row[1] == whole(card["tokens"]["total"])
        assert row[3] == f"{card['tokens']['shortest']} to {card['tokens']['longest']}"
        assert row[4:] == [f"`{card['sha256'][name]}`" for name in ("examples", "ids")]


def test_every_phrasing_is_shown(data):
    for name in RECIPE.families:
        for phrasing in family_named(name).phrasings:
            assert f"`{phrasing}`" in data


def test_every_number_of_the_data_card_is_counted_or_set(data, root):
    cards = [json.loads((root / f"corpus/{seed}/data_card.json").read_text()) for seed in SEEDS]
    totals = [sum(families.values()) for card in cards for families in card["tasks"].values()]
    settings = [*leaves(json.loads(CONFIG.model_dump_json())), *leaves(json.loads(RECIPE.model_dump_json()))]
    values = [*leaves(cards), *totals, *settings, *SEEDS, len(SEEDS), len(cards[0]["shared_identities"])]
    example = json.loads((TABLES / "example.json").read_text())
    _, text = parts(data)
    assert numbers(text) - written(values) - {"256", str(example["seed"])} == set()


def test_a_task_in_two_splits_is_told(root, tmp_path, data):
    assert "No task stands in two splits" in data
    card = json.loads((root / "corpus/7/data_card.json").read_text())
    card["shared_identities"]["pretrain/confirm"] = 3
    write_json(tmp_path / "data_card.json", card)
    write_text(tmp_path / "recipe.json", (root / "corpus/7/recipe.json").read_text())
    data_card.render(CONFIG, [tmp_path], TABLES / "example.json", tmp_path / "card.md")
    assert "**3 tasks stand in two splits**" in (tmp_path / "card.md").read_text()


def test_corpora_of_other_recipes_have_their_own_sections(root, tmp_path):
    other = RECIPE.model_copy(update={"cases_per_task": 5})
    write_json(tmp_path / "data_card.json", json.loads((root / "corpus/7/data_card.json").read_text()))
    write_text(tmp_path / "recipe.json", CorpusJob(corpus=other, seed=9).model_dump_json())
    data_card.render(CONFIG, [root / "corpus/7", tmp_path], TABLES / "example.json", tmp_path / "card.md")
    text = (tmp_path / "card.md").read_text()
    assert "## Corpus 1" in text
    assert "5 hidden cases a task" in text.partition("## Corpus 2")[2]


@pytest.mark.parametrize(("card", "category"), [("data", "1K<n<10K")])
def test_metadata_are_those_of_a_data_hub(data, card, category):
    metadata, _ = parts(data)
    assert metadata["size_categories"] == [category]
    assert {"pretty_name", "license", "language", "task_categories", "tags"} < metadata.keys()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"split": "dev"}, "which no training saw, but on which the start of RL was chosen"),
        ({}, "which no training saw and on which nothing was chosen"),
    ],
)
def test_a_card_says_of_its_split_what_is_true_of_it(root, monkeypatch, change, says):
    monkeypatch.chdir(root)
    studies = dict(CONFIG.studies) | {"main": CONFIG.studies["main"].model_copy(update=change)}
    out = root / "other.md"
    model_card.render(CONFIG.model_copy(update={"studies": studies}), TABLES, TABLES / "claims.csv", root / "manifest.json", out)
    assert says in out.read_text()


def test_a_reward_by_cases_is_not_called_all_or_nothing(root, monkeypatch):
    monkeypatch.chdir(root)
    recipes = CONFIG.model_dump(mode="json")["recipes"]
    recipes["main"]["rl"]["reward"]["kind"] = "fraction"
    config = load(CONFIG.model_dump(mode="json") | {"recipes": recipes, "claims": CONFIG.claims})
    out = root / "fraction.md"
    model_card.render(config, TABLES, TABLES / "claims.csv", root / "manifest.json", out)
    assert "0 to 1 by the share of cases passed, -0.1 for" in out.read_text()
