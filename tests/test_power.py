"""The command that says how many seeds a question needs: which differences it takes, and what it says of them."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from glint.power import differences, main
from glint.statistics.power import paired_power, seeds_needed
from tests.pipeline.checkout import ROOT

PUBLISHED = ROOT / "reports/reference/published"
ARCHITECTURE = ROOT / "reports/reference/architecture"
HEADER = "study,arm,seed,status,split,stop,scope,metric,before,after,of,gains,losses,p\n"


def report(folder: Path, *rows: str) -> Path:
    """Write a table of seeds with `rows` of arm, seed, before, after, all of 20."""
    folder.mkdir()
    lines = [
        f"main,{arm},{seed},complete,confirm,parses,targets,greedy_pass1,{before},{after},20,,,\n"
        for arm, seed, before, after in map(str.split, rows)
    ]
    (folder / "seeds.csv").write_text(HEADER + "".join(lines) + "main,base,9,missing,confirm,,,,,,,,,\n")
    return folder


def test_the_base_arm_is_set_against_itself_before_rl(tmp_path: Path) -> None:
    folder = report(tmp_path / "run", "base 1 2 10", "base 2 4 4", "other 1 2 20", "other 2 4 8")
    found = differences(folder, None, None, None)
    assert found.seeds == (1, 2)
    assert found.values_S.tolist() == pytest.approx([40, 0])


def test_another_arm_is_set_against_the_base_seed_by_seed_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    folder = report(tmp_path / "run", "base 1 2 10", "base 2 4 4", "other 2 4 8", "other 1 2 20", "other 3 0 20")
    found = differences(folder, "main", "other", None)
    assert found.seeds == (1, 2)
    assert found.values_S.tolist() == pytest.approx([50, 20])


@pytest.mark.parametrize(
    ("folder", "study", "arm", "table"),
    [
        (PUBLISHED, "expressions", None, "contrasts"),
        (PUBLISHED, "expressions", "blocked", "contrasts"),
        (PUBLISHED, "vision", None, "vision_contrasts"),
        (ARCHITECTURE, "structure", "kda", "architecture_contrasts"),
        (ARCHITECTURE, "structure", "dense_ffn", "architecture_contrasts"),
        (ARCHITECTURE, "recall", None, "recall_contrasts"),
    ],
)
def test_a_planned_comparison_has_the_mean_and_spread_of_its_table(folder: Path, study: str, arm: str | None, table: str) -> None:
    found = differences(folder, study, arm, None)
    rows = pd.read_csv(folder / f"{table}.csv").query("study == @study and method.str.startswith('Student')", engine="python")
    told = [row for row in rows.to_dict("records") if f"arm {row['arm']} at step {row['step']} less arm {row['against']}" in found.says]
    scale = 100 if found.shares else 1
    assert min(abs(row["estimate"] * scale - found.values_S.mean()) for row in told) < 1e-3 * max(1, abs(found.values_S.mean()))
    assert {row["n_seeds"] for row in told} == {len(found.seeds)}


def test_what_is_printed_is_what_the_formulas_give(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    main(["published", "--study", "main", "--effect", "8", "--power", "0.9"])
    text = capsys.readouterr().out
    sd = float(np.std(differences(PUBLISHED, "main", None, None).values_S, ddof=1))
    assert f"To see 8 points with a power of 90%: {seeds_needed(8, sd, 0.9):.0f} seeds;" in text
    line = next(line for line in text.splitlines() if line.startswith("16 points"))
    assert line.split()[2:] == [f"{paired_power(16, sd, seeds):.0%}" for seeds in (3, 5, 8, 10, 15, 20, 30)]
    assert "5 seeds in hand are too few" in text
    assert "below 0.05 from 6 seeds on" in text


def test_the_page_on_experiments_quotes_what_its_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs/your-own-experiment.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^python -m glint.power (.*--effect \S+)", page, re.MULTILINE)
    (quoted,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(ROOT)
    main(command.split())
    assert capsys.readouterr().out == quoted


def test_an_effect_that_no_share_can_have_is_neither_promised_nor_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(report(tmp_path / "run", "base 1 2 10", "base 2 4 4", "other 1 2 20", "other 2 4 8"))
    main([folder, "--effect", "50"])
    text = capsys.readouterr().out
    assert "2 seeds see nothing with that power, since a gain cannot exceed 100 points." in text
    assert [line.split()[0] for line in text.splitlines() if re.match(r"[\d.]+ points ", line)] == ["12.5", "25", "50", "100"]
    main([folder, "--arm", "other", "--effect", "50"])
    assert "since a difference of two gains cannot exceed 200 points." in capsys.readouterr().out
    with pytest.raises(SystemExit, match="--effect 101 cannot be: a gain cannot exceed 100 points"):
        main([folder, "--effect", "101"])


def test_a_number_of_seeds_beyond_all_reach_is_said_in_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    main([str(PUBLISHED), "--effect", "0.3"])
    text = capsys.readouterr().out
    assert re.search(r"a power of 80%: [\d,]+ seeds; [\d,]+ to over 100,000 by the interval of the deviation\.\n", text)
    assert "5 seeds in hand are too few to say more: that interval has no upper end below 100,000.\n" in text
    assert text.endswith("Effects are in points of 100: a share of 0.3 would be --effect 30.\n")
    main([str(PUBLISHED), "--effect", "0.001"])
    assert "a power of 80%: over 100,000 seeds; over 100,000 by the interval of the deviation.\n" in capsys.readouterr().out


def test_an_arm_of_another_study_is_found_for_who_asks() -> None:
    with pytest.raises(SystemExit, match=r"arm group_4 is unknown; .*; it is one of study screen \(--study screen\)"):
        main([str(PUBLISHED), "--arm", "group_4"])


def test_ten_seeds_of_a_steady_difference_are_not_called_too_few(capsys: pytest.CaptureFixture[str]) -> None:
    main([str(PUBLISHED), "--study", "expressions", "--effect", "3"])
    assert "too few" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere is neither a folder nor a run in reports/; there are: "),
        ([str(PUBLISHED), "--study", "mian"], "study mian is unknown; did you mean main?"),
        ([str(PUBLISHED), "--arm", "shufled"], "arm shufled is unknown; did you mean shuffled?"),
        ([str(PUBLISHED), "--metric", "loss"], "metric loss is unknown"),
        ([str(PUBLISHED), "--effect", "0"], "--effect 0 must be a size above 0"),
        ([str(PUBLISHED), "--effect", "nan"], "--effect nan must be a size above 0"),
        ([str(PUBLISHED), "--power", "1"], "--power 1 must lie between 0 and 1"),
        ([str(PUBLISHED), "--power", "0.01"], "the power above the level"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert str(ended.value).startswith("error: ")
    assert sentence in str(ended.value)
    assert "\n" not in str(ended.value)


def test_one_seed_and_seeds_that_all_agree_say_why_there_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="1 seed in hand shows no spread"):
        main([str(report(tmp_path / "one", "base 1 2 10"))])
    with pytest.raises(SystemExit, match="all 2 seeds differ by the same amount"):
        main([str(report(tmp_path / "two", "base 1 2 9", "base 2 4 11"))])


@pytest.mark.parametrize(("base", "other"), [("4", "8"), ("NA", "null"), ("01", "1e5")])
def test_an_arm_may_be_called_what_pandas_takes_for_a_number_or_for_nothing(tmp_path: Path, base: str, other: str) -> None:
    folder = report(tmp_path / "run", f"{base} 1 2 10", f"{base} 2 4 4", f"{other} 2 4 8", f"{other} 1 2 20")
    assert f"gain of arm {other} less gain of arm {base}" in differences(folder, None, other, None).says
