"""What reruns when something changes: every row of docs/caching.md, with real Snakemake on a finished run."""

import re
import subprocess

import pytest
import yaml

PAGE = {"render_report": 1}
CARDS = {"write_cards": 1}
TOLD = {**CARDS, "share_studies": 1}
REPORT = {"draw_figures": 1, "render_slides": 1, **PAGE}
CLAIMS = {"compare_claims": 1, **REPORT, **TOLD}
RL_TABLES = {"analyse_studies": 1, **CLAIMS}
OTHERS = {"analyse_expressions": 1, "analyse_vision": 1, "analyse_recall": 1, "analyse_architecture": 1}
LESSON = {"choose_lesson": 1}
TABLES = {**OTHERS, **LESSON, **RL_TABLES}
EXPLORER = {"render_explorer": 1}
RL_AGGREGATES = {"audit_rewards": 1, **EXPLORER, **LESSON, **RL_TABLES}
AGGREGATES = {**OTHERS, **RL_AGGREGATES}
EXPRESSIONS = {"train_expressions": 2, "analyse_expressions": 1, **RL_TABLES}
VISION = {"train_vision": 2, "analyse_vision": 1, **RL_TABLES}
NAMES = {"analyse_recall": 1, **REPORT, **TOLD}
RECALL = {"train_recall": 2, "analyse_recall": 1, **RL_TABLES}
STRUCTURES = {"analyse_architecture": 1, **REPORT, **TOLD}
COSTS = {"measure_costs": 2, "analyse_architecture": 1, **RL_TABLES}
LOSS = {"measure_loss": 2, "analyse_architecture": 1, **RL_TABLES}
ARM = {"train_rl": 1, "evaluate_curve": 1, "evaluate_after": 1, "trace_run": 1}
ARMS = {"train_rl": 2, "evaluate_curve": 2, "evaluate_after": 2, "trace_run": 2}
RL = {**ARMS, **RL_AGGREGATES}
TRACE = {"trace_run": 2, **EXPLORER, **LESSON, "render_slides": 1}
SELECTION = {"select_start": 1, "evaluate_before": 1, **VISION, **RL}
EVALUATION = {"evaluate_pretraining": 2, "analyse_architecture": 1, **SELECTION}
PRETRAINING = {"pretrain_longest_seed": 2, **LOSS, **EVALUATION}
CORPUS = {"draw_corpus": 1, "tokenise_corpus": 1, **PRETRAINING}

WARMER = {"rl": {"shuffle_rewards": True, "temperature": 0.5}, "several_changes": "a control at another temperature"}


def changed_config(checkout, change):
    """Apply `change` to the main study and recipe of the checkout's config."""
    path = checkout.path / "tiny.yaml"
    config = yaml.safe_load(path.read_text())
    change(config["studies"]["main"], config["recipes"]["main"])
    path.write_text(yaml.safe_dump(config))


@pytest.fixture(scope="module")
def workbench(finished, tmp_path_factory):
    """A copy in which one test after another edits a module, plans, and puts the module back."""
    return finished.copy(tmp_path_factory.mktemp("workbench") / "checkout")


def test_nothing_changed_nothing_runs(finished):
    assert finished.planned() == {}


def test_where_jobs_run_and_whence_results_come_mean_nothing(finished, tmp_path):
    assert finished.planned("--config", "jobs_per_gpu=2", f"shared={tmp_path}") == {}


def test_dates_comments_docstrings_layout_and_branches_mean_nothing(copy):
    for path in [*copy.path.rglob("*.py"), *copy.path.rglob("*.smk"), copy.path / "Snakefile"]:
        path.write_text(path.read_text() + "\n\n# A comment.\n")
    copy.edit("glint/files.py", '"""Write `text` to `path` atomically."""', '"""Write."""')
    copy.edit("rules/report.smk", "--tables {params.tables:q} --claims", "--tables {params.tables:q}  --claims")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(copy.path)]
    for arguments in (["init", "-q"], ["add", "glint"], ["commit", "-qm", "one"], ["switch", "-qc", "other"]):
        subprocess.run([*git, *arguments], check=True)
    copy.edit("glint/files.py", "utf-8", "ascii")
    for arguments in (["commit", "-qam", "two"], ["switch", "-q", "-"]):
        subprocess.run([*git, *arguments], check=True)
    for path in [*copy.path.rglob("*")]:
        path.touch()
    assert copy.planned() == {}


def test_order_of_keys_and_written_out_defaults_mean_nothing(copy):
    changed_config(copy, lambda study, recipe: recipe["rl"].update(temperature=0.35))
    assert copy.planned() == {}


@pytest.mark.parametrize(
    ("module", "jobs"),
    [
        ("glint/tasks/corpus.py", {"score_mutants": 1, **EXPRESSIONS, **COSTS, **CORPUS}),
        ("glint/train/pretrain.py", {**EXPRESSIONS, **COSTS, **PRETRAINING}),
        ("glint/model/decoder.py", {**EXPRESSIONS, **RECALL, **COSTS, **PRETRAINING}),
        ("glint/evaluate.py", EVALUATION),
        ("glint/config/evaluation.py", {**AGGREGATES, **EVALUATION}),
        ("glint/selection.py", SELECTION),
        ("glint/train/rloo.py", RL),
        ("glint/config/rl.py", {**AGGREGATES, **RL}),
        ("glint/tasks/expressions.py", EXPRESSIONS),
        ("glint/scoring.py", EXPRESSIONS),
        ("glint/analysis/expressions.py", {"analyse_expressions": 1, **CLAIMS}),
        ("glint/tasks/digits.py", VISION),
        ("glint/model/vision.py", VISION),
        ("glint/analysis/vision.py", {"analyse_vision": 1, **CLAIMS}),
        ("glint/tasks/recall.py", RECALL),
        ("glint/train/recall.py", RECALL),
        ("glint/analysis/recall.py", NAMES),
        ("glint/heldout.py", LOSS),
        ("glint/costs.py", COSTS),
        ("glint/trace.py", TRACE),
        ("glint/analysis/architecture.py", STRUCTURES),
        ("glint/analysis/paired.py", {**OTHERS, **CLAIMS}),
        ("glint/analysis/__init__.py", TABLES),
        ("glint/config/study.py", AGGREGATES),
        ("workflow/pipeline/plan.py", AGGREGATES),
        ("glint/audit.py", {"audit_rewards": 1, **PAGE, **CARDS}),
        ("glint/verify/mutation.py", {"score_mutants": 1, **PAGE, **CARDS}),
        ("glint/analysis/lesson.py", {"choose_lesson": 1, "render_slides": 1}),
        ("glint/report/slides.py", {"render_slides": 1}),
        ("glint/report/figures.py", REPORT),
        ("glint/report/explorer.py", EXPLORER),
        ("glint/report/model_card.py", CARDS),
        ("glint/report/findings.py", {"render_slides": 1, **PAGE, **TOLD}),
    ],
)
def test_edited_code_reruns_what_executes_it_and_what_follows(workbench, module, jobs):
    path = workbench.path / module
    text = path.read_text()
    path.write_text(text + "\nEDITED = True\n")
    try:
        assert workbench.planned() == jobs
    finally:
        path.write_text(text)


def test_an_edited_command_reruns_its_rule_and_what_follows(copy):
    copy.edit(
        "rules/report.smk",
        '"--tables {params.tables:q} --claims {input.claims:q} --out',
        '"--claims {input.claims:q} --tables {params.tables:q} --out',
    )
    assert copy.planned() == REPORT


def test_a_new_seed_runs_its_own_jobs_and_the_aggregates(copy):
    changed_config(copy, lambda study, recipe: study.update(seeds=[3, 4]))
    one = {"pretrain_longest_seed": 1, "evaluate_pretraining": 1}  # the seeds of the other studies stay
    new = {rule: one.get(rule, jobs) for rule, jobs in CORPUS.items() if rule not in ("train_vision", "measure_loss")}
    assert copy.planned() == {**AGGREGATES, **new}
    assert "seed-3/" not in re.split("Analysing|Auditing", copy.snakemake("--dry-run"))[0]


def test_a_removed_seed_reruns_the_aggregates(copy):
    changed_config(copy, lambda study, recipe: study.update(seeds=[3, 4]))
    copy.snakemake("--touch", "--cores", "1")
    changed_config(copy, lambda study, recipe: study.update(seeds=[3]))
    assert copy.planned() == AGGREGATES


def test_a_changed_arm_runs_its_own_jobs_and_the_aggregates(copy):
    changed_config(copy, lambda study, recipe: study["arms"].update(shuffled=WARMER))
    assert copy.planned() == {**ARM, **AGGREGATES}


def test_a_changed_plan_of_analysis_trains_nothing(copy):
    changed_config(copy, lambda study, recipe: study["analysis"].update(confidence=0.9))
    assert copy.planned() == AGGREGATES


def test_a_stricter_suite_is_tried_on_the_mutants_again(copy):
    changed_config(copy, lambda study, recipe: recipe["evaluation"].update(property_inputs=110))
    assert copy.planned() == {"score_mutants": 1, **AGGREGATES, **EVALUATION}


def test_cleaned_checkpoints_are_made_anew_only_when_needed(copy):
    copy.snakemake("--cores", "1", "clean_intermediates")
    assert not list(copy.path.rglob("model.safetensors"))
    assert copy.planned() == {}
    changed_config(copy, lambda study, recipe: study["arms"].update(shuffled=WARMER))
    assert copy.planned()["pretrain_longest_seed"] == 1


def test_a_deleted_result_is_made_anew(copy):
    (copy.path / "reports/tiny/estimates.csv").unlink()
    assert copy.planned() == RL_TABLES


def test_lost_records_are_refused(copy):
    records = list((copy.path / ".snakemake/metadata").iterdir())
    assert records
    for record in records:
        record.unlink()
    text = copy.snakemake("--dry-run", succeeds=False)
    assert "results have lost the record of how they were made" in text
    assert "Traceback" not in text
