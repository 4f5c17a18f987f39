"""The Snakefile itself: its linter, its targets, its refusals, its picture."""

import json
import re
import subprocess
import sys
import zipfile

import pandas as pd
import pytest

from glint.config.corpus import ALL_FAMILIES
from pipeline.plan import ROLES
from tests.pipeline import engine
from tests.pipeline.checkout import ROOT, Checkout, environment


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """A checkout without results."""
    return Checkout.fresh(tmp_path_factory.mktemp("code") / "checkout")


def test_linter_is_silent(code):
    assert "Congratulations" in code.snakemake("--lint")


@pytest.mark.parametrize(
    "config", ["config/published.yaml", "config/quick.yaml", "config/architecture.yaml", "config/architecture-quick.yaml"]
)
def test_shipped_configs_plan_every_stage(code, config):
    text = code.snakemake("--dry-run", "--configfile", config)
    assert "render_report" in text
    assert "pretrain_longest_seed" in text


def test_a_dry_run_names_the_arms_that_a_job_is_for(code):
    text = code.snakemake("--dry-run")
    assert re.search(r"Job \d+: RL of arm shuffled of main, seed 3\n", text)
    assert re.search(r"Job \d+: Pretraining seed 3 \(\w+ of main and \d+ more\)\n", text)
    assert "wildcards" not in text


def test_published_is_the_default():
    _, text = engine.snakemake(["--dry-run", "--quiet"], ROOT, environment())
    assert "config/published.yaml" in text


def test_targets_are_listed_with_what_they_make(code):
    listed = "\n" + code.snakemake("--list-rules")
    for target in (
        "all",
        "data",
        "pretrain",
        "rl",
        "evaluate",
        "expressions",
        "vision",
        "recall",
        "architecture",
        "statistics",
        "figures",
        "report",
        "explorer",
        "cards",
        "tensorboard",
        "slides",
        "dag",
        "clean_intermediates",
    ):
        assert f"\n{target} (" in listed


@pytest.mark.parametrize(
    ("target", "last"),
    [
        ("data", "tokenise_corpus"),
        ("rl", "train_rl"),
        ("expressions", "analyse_expressions"),
        ("vision", "analyse_vision"),
        ("recall", "analyse_recall"),
        ("architecture", "analyse_architecture"),
        ("statistics", "compare_claims"),
        ("figures", "draw_figures"),
        ("explorer", "render_explorer"),
        ("cards", "share_studies"),
    ],
)
def test_a_target_runs_up_to_its_stage(code, target, last):
    order = [
        "train_expressions",
        "analyse_expressions",
        "train_recall",
        "analyse_recall",
        "tokenise_corpus",
        "measure_costs",
        "measure_loss",
        "analyse_architecture",
        "select_start",
        "train_vision",
        "analyse_vision",
        "train_rl",
        "evaluate_after",
        "trace_run",
        "render_explorer",
        "compare_claims",
        "write_cards",
        "share_studies",
        "draw_figures",
        "render_report",
    ]
    planned = code.planned(target)
    assert {rule for rule in order if rule in planned} >= {last}
    assert not set(order[order.index(last) + 1 :]) & set(planned)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("quick=true", "Config error: key quick is unknown"),
        ('recipes={"main": {"rl": {"gruop_size": 8}}}', "key recipes.main.rl.gruop_size is unknown; did you mean group_size?"),
        ("claims=config/absent.yaml", "Config error: claims config/absent.yaml: there is no such file in "),
    ],
)
def test_a_wrong_config_is_one_sentence_and_no_job(code, override, sentence):
    text = code.snakemake("--cores", "1", "--config", override, succeeds=False)
    assert sentence in text
    assert "Traceback" not in text
    assert "Job stats" not in text


def test_an_unplanned_result_is_one_sentence(code):
    text = code.snakemake("--dry-run", "results/tiny/rl/abc/seed-3/weights.json", succeeds=False)
    assert "results/tiny/rl/abc/seed-3 is no result of this config" in text
    assert "Traceback" not in text


def test_manifest_names_files_that_the_rules_make(finished):
    for stage, name in ROLES.values():
        assert list((finished.path / "results/tiny" / stage).glob(f"*/seed-3/{name}"))


@pytest.mark.parametrize(("phase", "checkpoints"), [("before", 1), ("after", 2)])
def test_a_reported_checkpoint_is_asked_the_canary_apart(finished, phase, checkpoints):
    folders = list((finished.path / f"results/tiny/evaluate/{phase}").glob("*/seed-3"))
    assert len(folders) == checkpoints
    for folder in folders:
        reported, canary = (pd.read_parquet(folder / f"{name}.parquet") for name in ("completions", "canary"))
        assert set(reported["family"]) == {"increment", "double", "even"}
        assert set(canary["family"]) == set(canary["split"]) == {"canary"}
        assert canary["checkpoint"].unique().tolist() == reported["checkpoint"].unique().tolist()
        assert set(canary["mode"]) == {"greedy", "sampled"}
        assert not (canary["verdict"] == "passed").any()


def test_the_checks_on_rewards_are_made(finished):
    reports = finished.path / "reports/tiny"
    counts, scores = pd.read_csv(reports / "honesty.csv"), pd.read_csv(reports / "mutation.csv")
    assert set(counts["phase"]) == {"before", "after", "training"}
    assert set(counts["arm"]) == {"published", "shuffled"}
    assert counts["property_failed"].sum() == counts.loc[counts["family"] == "canary", "rewarded"].sum() == 0
    assert scores["family"].tolist() == list(ALL_FAMILIES)
    assert scores["killed"].tolist() == scores["mutants"].tolist()
    assert "none passed the property suite" in (reports / "report.html").read_text()


def test_cards_pictures_and_summaries_are_part_of_a_run(finished):
    reports = finished.path / "reports/tiny"
    assert "# Model card" in (reports / "model_card.md").read_text()
    assert "# Data card" in (reports / "data_card.md").read_text()
    studies = {"main", "expressions", "vision", "names", "structure"}
    for kind in ("png", "md"):
        assert {path.stem for path in (reports / "share").glob(f"*.{kind}")} == studies
    assert "`snakemake --cores all --configfile tiny.yaml`" in (reports / "share/main.md").read_text()


def test_snakemakes_own_report_is_made_with_captions_and_without_a_network(copy):
    copy.snakemake("--report", "report.zip")
    with zipfile.ZipFile(copy.path / "report.zip") as archive:
        text = "".join(archive.read(name).decode() for name in archive.namelist() if name.endswith((".html", ".js")))
    for part in ("model_card.md", "share/main.png", "before_after.svg", "Sampled answers that pass in each family", "Figures", "Cards"):
        assert part in text


def test_tensorboard_logs_are_made_on_demand_alone(copy):
    assert not (copy.path / "results/tiny/tensorboard").exists()
    copy.snakemake("--cores", "1", "tensorboard")
    folders = {str(path.parent.relative_to(copy.path / "results/tiny/tensorboard")) for path in copy.path.rglob("events.out.*")}
    assert {"pretrain/main.published/seed-3", "rl/main.shuffled/seed-3"} < folders
    assert copy.planned() == {}


def test_a_plan_of_a_finished_run_says_what_is_to_do_and_no_results(copy):
    text = copy.snakemake("--cores", "1", "plan_reference")
    assert "CPU hours; " in text
    assert "Report: " not in text


def test_the_slides_work_a_real_advantage_out(finished):
    reports = finished.path / "reports/tiny"
    group = json.loads((reports / "lesson.json").read_text())["group"]
    for sample in group["samples"]:
        assert (sample["reward"] - sample["baseline"]) / group["scale"] == pytest.approx(sample["advantage"], abs=1e-6)
    assert 'id="advantage"' in (reports / "slides.html").read_text()


def test_without_reveal_the_slides_name_the_command_that_brings_it(copy):
    (copy.path / "node_modules").unlink()
    (copy.path / "reports/tiny/slides.html").unlink()
    text = copy.snakemake("--cores", "1", "slides", succeeds=False)
    assert "node_modules/reveal.js/dist/reveal.css is missing, and the slides are shown with it: `make install` brings reveal.js" in text


def test_picture_of_the_rules_is_up_to_date(code):
    command = [sys.executable, "-m", "snakemake", "--rulegraph", "mermaid-js", "report"]
    drawn = subprocess.run(command, cwd=code.path, env=environment() | {"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True)
    assert (ROOT / "docs/pipeline.mmd").read_text() == drawn.stdout, "run `snakemake --cores 1 dag`"
