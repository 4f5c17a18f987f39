"""The section on architecture: what its words, tables and figures say of made-up studies, and where it is absent."""

import json
import re
import shutil
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from glint.analysis.architecture import analyse
from glint.report import architecture, costs, recall
from glint.report.figures import FIGURES
from glint.report.page import render
from glint.report.results import Results
from glint.report.wording import MECHANISMS, REAL, nats, nats_interval, points
from glint.statistics.intervals import OVER_SEEDS
from tests.report import architecture_tables, structures, synthetic
from tests.report.architecture_tables import ARMS, COLUMNS, STEPS
from tests.report.test_page import Outline

NAMES = ("losses", "forest", "sources", "recall", "costs")


@pytest.fixture(scope="module")
def folder(analysed, reported, tmp_path_factory):
    """Return a folder with the tables of the synthetic run and of an architecture and a recall study, the claims and the figures."""
    root = tmp_path_factory.mktemp("architecture")
    shutil.copytree(analysed / "report", root, dirs_exist_ok=True)
    shutil.copytree(reported / "figures", root / "figures")
    shutil.copy(reported / "claims.csv", root)
    architecture_tables.write(root, missing=[("streams", 46)])
    return root


@pytest.fixture
def copy(folder, tmp_path):
    """Return a copy of that folder whose tables a test may change."""
    return shutil.copytree(folder, tmp_path / "tables")


def results(folder):
    return Results(folder, folder / "claims.csv")


def page(folder, config):
    render(config, folder, folder / "claims.csv", folder / "figures", folder / "report.html")
    return (folder / "report.html").read_text()


def section(folder, **studies):
    """Return the section of the page, without its pictures."""
    text = page(folder, architecture_tables.config(**studies))
    Outline(text)  # every element closes
    found = re.findall(r'<section id="architecture">.*?</section>', text, re.DOTALL)
    assert len(found) == 1
    return re.sub(r"<svg.*?</svg>", "", found[0], flags=re.DOTALL)


def words(folder, **studies):
    return Outline(section(folder, **studies)).text


def edit(folder, name, change):
    """Rewrite one table by `change`."""
    change(pd.read_csv(folder / f"{name}.csv")).to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")


@pytest.fixture(scope="module")
def shown(folder):
    return section(folder)


def comparisons(folder):
    """Return the comparisons of losses over all sources, by name."""
    table = pd.read_csv(folder / "architecture_contrasts.csv")
    return table[(table["source"] == "all") & (table["outcome"] == "loss")].set_index("contrast")


def test_what_was_asked_then_the_verdicts_then_arms_then_figures(shown):
    order = ("Which structure pays?", "Which structure pays at this size?", "Arms: sizes and outcomes", "Arms: what they cost")
    captions = ("Held-out loss of every arm", "Every comparison over all", "Difference in held-out loss, in", "Share of names", "CPU time")
    text = Outline(shown).text
    places = [text.index(part) for part in (*order, *captions)]
    assert places == sorted(places)


def test_each_comparison_stands_under_its_verdict_with_its_interval(shown, folder):
    parts = dict(re.findall(r'<h4><span class="verdict (\w+)">.*?</h4>\s*<ul.*?>(.*?)</ul>', shown, re.DOTALL))
    rows = comparisons(folder)
    assert set(rows["verdict"]) == {"pays", "costs", "undecided"} == set(parts)
    for name, row in rows.iterrows():
        (line,) = re.findall(rf"<li><strong>{name}</strong>: (.*?)</li>", parts[row["verdict"]])
        assert f"{nats(row['estimate'], signed=True)} nats a token {nats_interval(row['low'], row['high'], signed=True)}" in line
        assert f"p {row['p_holm']:.2g}, {row['n_seeds']} seeds" in line
        assert f"step {row['step']}" in line
    assert sum(part.count("<li>") for part in parts.values()) == len(rows)


def test_a_verdict_that_no_comparison_has_says_none(copy):
    edit(copy, "architecture_contrasts", lambda table: table.assign(verdict="undecided"))
    text = words(copy)
    assert re.search(r"Pays\s+none\s+Costs\s+none\s+Cannot be decided\s+dense", text)
    assert "0 comparisons pay, 0 cost and 10 cannot be decided" in text


def test_the_words_count_comparisons_seeds_and_what_holm_leaves(shown, folder, copy):
    text = Outline(shown).text
    decided = (comparisons(folder)["verdict"] != "undecided").sum()
    assert f"{decided} of the 10 comparisons pay or cost by it, each over 4 to 5 training seeds" in text
    assert "Corrected for all comparisons together, 0 of the 10 remain significant" in text
    assert "over so few seeds cannot give less than 0.0625 even before the correction; times the 10 comparisons that is more" in text
    assert text.index("Corrected for all comparisons") < text.index("Holm’s p 1,")
    edit(copy, "architecture_contrasts", lambda table: table.assign(p_holm=table["p_holm"].where(table["arm"] != "kda", 0.01)))
    assert "2 of the 10 remain significant" in words(copy)


def test_an_arm_of_another_size_is_marked(shown):
    marked = re.findall(r'<th scope="row">(\w+)</th>(?:(?!</tr>).)*not equal', shown, re.DOTALL)
    assert marked == ["streams"]


def test_an_arm_is_told_in_words_of_its_recipe_and_the_real_mechanisms_by_name(copy):
    plan = json.loads(architecture_tables.config().model_dump_json())
    arms = plan["studies"]["architecture"]["arms"]
    arms["faithful"] = {"model": {"linear": "kda", "sparse": "indexed", "residual": "mhc", "router": "sigmoid"}, "several_changes": "all"}
    arms["kda"] = {"model": {"linear": "kda"}}
    text = page(copy, type(synthetic.config()).model_validate_json(json.dumps(plan)))
    told = dict(re.findall(r'<th scope="row">(\w+)</th><td class="words">(.*?)</td><td class="words">', text))
    assert told["kda"] == MECHANISMS["linear", "kda"]
    assert told["indexed"] == "the same mechanisms in other sizes"
    assert all(MECHANISMS[pair] in told["faithful"] for pair in REAL.items())
    assert "All of them together stand in <code>faithful</code>." in text
    assert "Real mechanisms" not in page(copy, architecture_tables.config())


def test_the_lead_counts_the_verdicts_and_links_to_them(folder):
    lead = page(folder, architecture_tables.config()).partition("</header>")[0]
    counts = comparisons(folder)["verdict"].value_counts()
    said = f'{counts["pays"]} pay, {counts["costs"]} cost and {counts["undecided"]} cannot be decided: <a href="#architecture">'
    assert said in lead


def test_the_gain_by_rl_is_that_of_the_arm_of_the_same_name_and_model(shown, copy):
    assert "gain by RL" not in shown
    for name in COLUMNS:
        (copy / f"{name}.csv").write_text((copy / f"{name}.csv").read_text().replace("hybrid", "published"))
    plan = architecture_tables.config().model_dump_json().replace('"hybrid"', '"published"')
    found = page(copy, type(synthetic.config()).model_validate_json(plan))
    gain = results(copy).estimate("targets", "greedy_pass1", "gain", arm="published")["estimate"]
    assert found.count(">gain by RL</th>") == 1
    assert re.search(rf"<td>{re.escape(points(gain))} \[.*?</td></tr>", found)
    assert "begins above the band" not in found
    low = page(copy, type(synthetic.config()).model_validate_json(plan.replace('"high":0.6', '"high":0.3')))
    assert len(re.findall(r"Arm <code>published</code> begins above the band", low)) == 2  # beside the gain there, and here
    other = json.loads(plan)
    other["studies"]["architecture"]["arms"]["published"] = {"model": {"streams": 2}}
    assert ">gain by RL</th>" not in page(copy, type(synthetic.config()).model_validate_json(json.dumps(other)))


def numbers(text):
    """Return the numbers of a text, without signs; steps of a thousand and decimals belong to them."""
    return set(re.findall(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?", text))


def written(value):
    """Return the forms in which the page may write a number."""
    value = abs(value)
    forms = [f"{value:,.0f}", f"{value:.1f}", f"{value:.3f}", f"{value:.2g}", f"{value:.3g}", f"{100 * value:.1f}"]
    return {*forms, f"{1000 * value:.3g}", f"{value / 1024:,.0f}", f"{value / 1e12:.3g}"}


def unexplained(text, folder):
    """Return the numbers of a text that no table and no setting holds."""
    tables = {name: pd.read_csv(folder / f"{name}.csv") for name in COLUMNS}
    values = [value for table in tables.values() for value in table.select_dtypes("number").to_numpy().ravel()]
    values += tables["architecture"].groupby(["arm", "step"])["flops"].mean().tolist()
    known = set().union(*(written(value) for value in values if not np.isnan(value)))
    settings = {"95", "5", "0.5", f"{100 * architecture.EQUAL_FLOPS:g}"}
    counts = {str(count) for count in range(len(comparisons(folder)) + 1)}
    formula, units = {"6"}, {"10"}
    return numbers(text) - known - settings - counts - formula - units


def test_every_number_of_the_section_stands_in_a_table_or_is_a_setting(shown, folder):
    text = re.sub(r"<[^>]+>", " ", shown)
    assert len(numbers(text)) > 200
    assert unexplained(text, folder) == set()
    assert unexplained(f"{text} and 0.7391 or 12,345", folder) == {"0.7391", "12,345"}


def test_a_run_without_such_a_study_has_no_such_section(reported):
    text = (reported / "report.html").read_text()
    assert "Architecture" not in text
    assert 'id="architecture"' not in text


@pytest.mark.parametrize(("kind", "other"), [("architecture", "recall"), ("recall", "architecture")])
def test_one_kind_is_enough(copy, kind, other):
    architecture_tables.write(copy, **{other: ()})
    text = words(copy, **{other: ()})
    assert f"Study {kind}" in text
    assert f"Study {other}" not in text
    assert ("Share of names recalled" in text) == (kind == "recall")
    assert ("What a longer context costs" in text) == (kind == "architecture")
    for name in NAMES:
        assert "</svg>" in FIGURES[name](results(copy))


def test_two_studies_of_a_kind_stand_one_after_the_other(copy):
    architecture_tables.write(copy, architecture=("first", "second"), recall=("third", "fourth"))
    text = words(copy, architecture=("first", "second"), recall=("third", "fourth"))
    places = [text.index(f"Study {name}") for name in ("first", "second", "third", "fourth")]
    assert places == sorted(places)
    assert text.count("Every comparison over all sources") == 1
    for name, studies in (("losses", 2), ("forest", 2), ("sources", 2), ("recall", 2), ("costs", 2)):
        assert len(re.findall(r">study \w+</text>", FIGURES[name](results(copy)))) == studies


def test_an_arm_without_costs_leaves_its_cells_empty(copy):
    for name in ("costs", "costs_speed"):
        edit(copy, name, lambda table: table[table["arm"] != "kda"])
    table = architecture.costs(results(copy), "architecture", STEPS[-1])
    assert {row[0]: row[3:] for row in table.rows}["kda"] == ("", "", "", "")
    assert "arm kda" not in FIGURES["costs"](results(copy))
    assert "nan" not in words(copy)


def test_an_arm_that_no_table_holds_is_not_spoken_of(copy):
    architecture_tables.write(copy, arms=("hybrid", "kda"))
    assert "dense" not in words(copy)
    assert "arm dense" not in FIGURES["losses"](results(copy))


def test_a_missing_seed_is_named_and_counted(folder):
    text = Outline(page(folder, architecture_tables.config())).text
    assert "architecture/streams seed 46, recall/streams seed 46." in text
    table = architecture.outcomes(architecture_tables.config(), results(folder), "architecture", "greedy_pass1", [])
    assert {row[0]: row[3] for row in table.rows}["streams"] == "4"


def test_one_seed_has_no_interval_and_decides_nothing(copy):
    architecture_tables.write(copy, missing=[(arm, seed) for arm in ARMS for seed in (43, 44, 45, 46)])
    text = words(copy)
    assert "nats a token, no interval, Holm’s p 1, 1 seed" in text
    assert "each over 1 training seed, and" in text
    assert not re.search(r"\bnan\b", text)
    for name in NAMES:
        assert "nan" not in FIGURES[name](results(copy))


@pytest.mark.parametrize(
    ("steps", "flops", "said"),
    [
        ((200, 200), (1.0, 2.0), "equal steps"),
        ((200, 80), (1.0, 0.99), "equal training FLOPs"),
        ((200, 200), (1.0, 1.01), "equal steps and FLOPs"),
        ((200, 100), (1.0, 1.5), "unequal steps and FLOPs"),
    ],
)
def test_what_was_equal_is_read_from_steps_and_flops(copy, steps, flops, said):
    changed = dict(zip(("step", "against_step", "arm_flops", "against_flops"), (*steps, *flops), strict=True))
    edit(copy, "architecture_contrasts", lambda table: table.assign(**changed))
    assert set(architecture.compared(results(copy), "architecture")["basis"]) == {said}


def test_a_comparison_at_several_steps_has_the_step_in_its_name(copy):
    edit(copy, "architecture_contrasts", lambda table: table.assign(contrast=table["contrast"].replace("kda_flops", "kda")))
    names = architecture.overall(results(copy), "architecture")["name"].tolist()
    assert [name for name in names if name.startswith("kda")] == ["kda, step 160", "kda, step 120 against step 160"]
    assert "dense" in names


def test_dev_tasks_are_written_as_shares_and_points(folder):
    table = pd.read_csv(folder / "architecture_contrasts.csv").query("contrast == 'kda' and outcome == 'dev'").iloc[0]
    (row,) = (row for row in architecture.comparisons(results(folder), "architecture", "dev").rows if row[0].startswith("kda:"))
    assert row[1] == f"{table['arm_mean']:.1f}\u202f%"
    assert row[3] == points(table["estimate"] / 100)


def test_recall_names_the_distances_at_which_an_arm_is_better(copy):
    table = pd.read_csv(copy / "recall_contrasts.csv").query("arm == 'kda' and method.str.endswith('texts')")
    ends = {"16": (-0.1, 0.1), "32": (0.1, 0.3), "64": (0.2, 0.6), "128": (-0.3, -0.1), "256": (-0.1, 0.1), "512": (-0.1, 0.1)}
    low, high = zip(*({"all": (0.02, 0.08)} | ends).values(), strict=True)
    wide = table.assign(low=low, high=high, estimate=np.add(low, high) / 2, n_seeds=5)
    narrow = wide.assign(method=OVER_SEEDS, low=wide["low"].replace({0.02: 0.01, 0.2: 0.1, -0.3: -0.4}))
    narrow.loc[narrow["distance"] == "32", "low"] = -0.1  # the words rest on both intervals
    narrow.loc[narrow["distance"] == "256", "low"] = 0.01
    pd.concat([wide, narrow]).to_csv(copy / "recall_contrasts.csv", index=False)
    ((pair, text),) = recall.verdicts(results(copy), "recall")
    assert pair == "kda against hybrid, step 160"
    assert text == (
        "over all distances +5.0 points [+2.0, +8.0] and [+1.0, +8.0], 5 seeds; "
        "kda recalls more at 64 tokens (widest: +40.0 points [+20.0, +60.0] and [+10.0, +60.0] at 64); "
        "hybrid recalls more at 128 tokens (widest: −20.0 points [−30.0, −10.0] and [−40.0, −10.0] at 128); "
        "undecided at 16, 32, 256, 512 tokens"
    )
    first, second = recall.comparisons(results(copy), "recall").rows[:2]
    assert (first[0], second[0]) == ("kda against hybrid, step 160\nall distances", "kda against hybrid, step 160\n16 tokens")
    assert first[4:6] == ("[+2.0, +8.0]", "[+1.0, +8.0]")


def test_costs_go_from_the_shortest_context_to_the_longest(folder):
    rows = pd.read_csv(folder / "costs.csv").query("arm == 'dense'").set_index("context").to_dict("index")
    row = {row[0]: row for row in costs.growth(results(folder), "architecture").rows}["dense"]
    assert row[1] == "128 → 4,096"
    assert row[2] == " → ".join(f"{1000 * rows[context]['decode_seconds']:.3g}" for context in (128, 4096))
    assert row[-1] == " → ".join(f"{rows[context]['cache_bytes']:,}" for context in (128, 4096))


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_drawn_alike_each_time_and_says_what_it_shows(folder, name):
    picture = FIGURES[name](results(folder))
    assert picture == FIGURES[name](results(folder))
    root = ElementTree.fromstring(picture)
    title, description = (next(root.iter(f"{{http://www.w3.org/2000/svg}}{tag}")).text or "" for tag in ("title", "desc"))
    assert title
    assert "dense" in description
    assert re.search(r"\d\.\d|\d %|\d\u202f%", description)
    assert not re.search(r"#[0-9a-fA-F]{6}\b", re.sub(r"<style>svg.*?</style>", "", picture, flags=re.DOTALL))


def test_the_cells_hold_every_source_in_thousandths(folder):
    picture = FIGURES["sources"](results(folder))
    table = pd.read_csv(folder / "architecture_contrasts.csv").query("outcome == 'loss'")
    drawn = re.findall(r">((?:[+−]\d+)|0)</text>", picture)
    expected = [f"{round(1000 * value):+d}".replace("-", "−").replace("+0", "0") for value in table["estimate"]]
    assert drawn == expected


def test_the_chance_of_a_guess_is_drawn(folder):
    assert ">chance</text>" in FIGURES["recall"](results(folder))


def test_the_tables_of_the_analysis_itself_are_shown(copy, tmp_path):
    structures_of = structures.config().studies["structure"]
    architecture_tables.write(copy, recall=())
    analyse(structures.config(), structures.write(tmp_path / "results"), copy)
    plan = json.loads(synthetic.config().model_dump_json())
    plan["studies"]["structure"] = json.loads(structures_of.model_dump_json()) | {"recipe": "structure"}
    plan["recipes"]["structure"] = json.loads(structures.config().recipes["main"].model_dump_json())
    text = page(copy, type(synthetic.config()).model_validate_json(json.dumps(plan)))
    assert "Study <code>structure</code>" in text
    for name in NAMES:
        ElementTree.fromstring(FIGURES[name](results(copy)))
