"""The command that sets two runs side by side: what differs in their configs, and which differences of results exclude zero."""

import json
from pathlib import Path

import pytest
from scipy import stats

from glint.compare import Run, compared, config_differences, main
from glint.config.base import digest
from glint.config.load import load
from glint.statistics.intervals import TASKS_WITHIN_FAMILIES
from tests.pipeline.checkout import ROOT

PUBLISHED = ROOT / "reports/reference/published"
ARCHITECTURE = ROOT / "reports/reference/architecture"
TINY = load(ROOT / "tests/pipeline/tiny.yaml").model_dump(mode="json")
SEEDS = "study,arm,seed,status,split,stop,scope,metric,before,after,of,gains,losses,p\n"
ESTIMATES = "study,arm,split,stop,scope,metric,phase,estimate,low,high,n_seeds,n_tasks,n_completions,p,p_floor,method\n"


def write_run(folder: Path, after: dict[int, int], **changes: object) -> str:
    """Write the tables of a run whose seeds solve `after` of 100 tasks after RL, and its config with `changes`; return the folder."""
    folder.mkdir()
    rows = [f"main,base,{seed},complete,confirm,parses,targets,greedy_pass1,10,{solved},100,,,\n" for seed, solved in after.items()]
    (folder / "seeds.csv").write_text(SEEDS + "".join(rows))
    (folder / "estimates.csv").write_text(
        f"{ESTIMATES}main,base,confirm,parses,targets,greedy_pass1,after,0.5,0.25,0.75,3,100,300,,,{TASKS_WITHIN_FAMILIES}\n"
    )
    (folder / "config.json").write_text(json.dumps({"run": folder.name, **TINY, **changes}))
    (folder / "provenance.json").write_text(json.dumps({"config": "0123"}))
    return str(folder)


def after_rl(one: str, other: str):
    """Return the comparison of what is solved after RL."""
    (row,) = (row for row in compared(Run.read(one), Run.read(other)) if row.of.phase == "after")
    return row


def test_runs_with_seeds_in_common_are_paired_by_seed(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {1: 40, 2: 50, 3: 70, 4: 0})
    other = write_run(tmp_path / "b", {3: 76, 2: 55, 1: 44, 9: 99})
    row = after_rl(one, other)
    interval = stats.ttest_rel([0.44, 0.55, 0.76], [0.40, 0.50, 0.70]).confidence_interval(0.95)
    assert (row.difference.estimate, row.difference.low, row.difference.high) == pytest.approx((0.05, interval.low, interval.high))
    assert (row.method, row.seeds) == ("paired by seed", (3, 3))
    assert row.excludes_zero


def test_runs_with_seeds_of_their_own_are_compared_between_their_means(tmp_path: Path) -> None:
    one, other = write_run(tmp_path / "a", {1: 40, 2: 50, 3: 70}), write_run(tmp_path / "b", {3: 76, 5: 55})
    row = after_rl(one, other)
    interval = stats.ttest_ind([0.76, 0.55], [0.4, 0.5, 0.7], equal_var=False).confidence_interval(0.95)
    assert (row.difference.low, row.difference.high) == pytest.approx((interval.low, interval.high))
    assert (row.method, row.seeds) == ("seeds of their own", (3, 2))
    assert not row.excludes_zero


def test_equal_differences_of_few_seeds_and_single_seeds_decide_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other, single = (
        write_run(tmp_path / name, after) for name, after in (("a", {1: 40, 2: 50}), ("b", {1: 45, 2: 55}), ("c", {8: 90}))
    )
    assert not after_rl(one, other).excludes_zero
    main([one, other])
    text = capsys.readouterr().out
    assert "No difference has an interval with a width" in text
    assert text.count("study main, arm base") == 1  # before, after and gain stand under one heading
    assert not after_rl(one, single).excludes_zero


def test_the_intervals_of_the_runs_are_those_of_their_reports(tmp_path: Path) -> None:
    row = after_rl(write_run(tmp_path / "a", {1: 40, 2: 50}), write_run(tmp_path / "b", {1: 45, 2: 56}))
    assert (row.one.low, row.one.high) == (row.other.low, row.other.high) == (0.25, 0.75)


def test_configs_differ_by_dotted_key_and_a_section_that_one_lacks_is_one_key() -> None:
    one = {"recipes": {"main": {"rl": {"lr": 0.1, "families": ["a"]}}}, "claims": None}
    other = {"recipes": {"main": {"rl": {"lr": 0.2, "families": ["a"]}}, "mini": {"rl": {}}}}
    assert list(config_differences(one, other)) == [
        ("claims", "null", "absent"),
        ("recipes.main.rl.lr", "0.1", "0.2"),
        ("recipes.mini", "absent", "present"),
    ]


def test_what_is_printed_names_the_changed_key_and_marks_the_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write_run(tmp_path / "a", {1: 40, 2: 50, 3: 70})
    other = write_run(tmp_path / "b", {1: 44, 2: 55, 3: 76}, claims="config/claims.yaml")
    main([one, other])
    text = capsys.readouterr().out
    assert 'claims: null | "config/claims.yaml"' in text
    (line,) = (line for line in text.splitlines() if "greedy_pass1 after" in line)
    assert "50.0 [25.0, 75.0]" in line
    assert "+5.0 [+2.5, +7.5] *" in line
    assert "2 of 2 differences with an interval exclude 0" in text


def test_tables_of_an_older_version_lack_their_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = write_run(tmp_path / "a", {1: 40, 2: 50}), write_run(tmp_path / "b", {1: 44, 2: 55})
    (tmp_path / "a/config.json").unlink()
    main([one, other])
    assert f"Config: {one} has no config.json" in capsys.readouterr().out
    (tmp_path / "b/config.json").unlink()
    main([one, other])
    assert f"Config: {one} and {other} have no config.json" in capsys.readouterr().out


def test_equal_runs_say_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([write_run(tmp_path / name, {1: 40, 2: 50}) for name in ("a", "b")])
    (line,) = capsys.readouterr().out.splitlines()
    assert "are equal" in line


def test_real_runs_of_other_studies_name_what_only_one_of_them_has(capsys: pytest.CaptureFixture[str]) -> None:
    main([str(PUBLISHED), str(ARCHITECTURE)])
    text = capsys.readouterr().out
    assert "no study, arm and metric in common" in text
    assert "Only in A: main, published;" in text
    assert "Only in B: main, hybrid;" in text


@pytest.mark.parametrize("folder", [PUBLISHED, ARCHITECTURE], ids=["published", "architecture"])
def test_every_study_of_a_run_is_compared_and_equals_itself(folder: Path) -> None:
    run = Run.read(str(folder))
    rows = compared(run, run, everything=False)
    assert {row.of.study for row in rows} == set(run.values["study"])
    assert {row.difference.estimate for row in rows} == {0}


def test_the_config_beside_the_tables_is_the_whole_one(tmp_path: Path) -> None:
    config = load(ROOT / "config/quick.yaml")
    saved = json.loads(json.dumps(config.model_dump(mode="json")))
    assert digest(load(saved)) == digest(config)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere", str(PUBLISHED)], "nowhere is neither a folder nor a run in reports/; there are: mine, reference/published"),
        ([str(ROOT / "config"), str(PUBLISHED)], "holds no tables of a run"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in ("reference/published", "mine"):
        (tmp_path / "reports" / run).mkdir(parents=True)
        (tmp_path / "reports" / run / "seeds.csv").write_text(SEEDS)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert sentence in str(ended.value)
    assert "\n" not in str(ended.value)


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_an_interval_of_a_run_has_the_level_that_the_heading_says(tmp_path: Path, level: float) -> None:
    studies = json.loads(json.dumps(TINY["studies"]))
    studies["main"]["analysis"]["confidence"] = level
    one = write_run(tmp_path / "one", {1: 40, 2: 50, 3: 70}, studies=studies)
    row = after_rl(one, one)
    own = stats.ttest_1samp([0.4, 0.5, 0.7], 0).confidence_interval(0.95)
    wanted = (0.25, 0.75) if level == 0.95 else (own.low, own.high)
    assert (row.one.low, row.one.high) == pytest.approx(wanted)


@pytest.mark.parametrize(("seeds", "passes"), [({1: 20, 2: 90}, True), ({1: 54, 2: 55}, False), ({1: 9, 2: 14}, False)])
def test_an_interval_that_passes_the_ends_of_a_share_is_explained_and_one_of_a_gain_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seeds: dict[int, int], passes: bool
) -> None:
    studies = json.loads(json.dumps(TINY["studies"]))
    studies["main"]["analysis"]["confidence"] = 0.8 if passes else 0.95  # at 0.8 the report has no interval to give
    one = write_run(tmp_path / "one", seeds, studies=studies)
    main([one, write_run(tmp_path / "other", {1: 50, 2: 51}, studies=studies)])
    assert ("where that of a share passes 0 or 100, read it as ending there" in capsys.readouterr().out) == passes
