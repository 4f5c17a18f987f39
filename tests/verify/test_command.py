import json

import pytest

from glint.tasks.families import FAMILIES
from glint.verify import VerifierError
from glint.verify import __main__ as command
from glint.verify.judge import Verifier

PROGRAMS = {
    "right": "# any name\ndef is_it(x):\n    return x % 2 == 0\n",
    "wrong": "def is_it(x):\n    return x > 0\n",
    "denied": "def is_it(x):\n    import os\n    return x\n",
    "broken": "def is_it(x):\n    return (x\n",
    "broken_late": "def is_it(x):\n    break\n",
    "two": "def a(x):\n    return x\ndef b(x):\n    return x\n",
    "other_argument": "def is_it(y):\n    return y % 2 == 0\n",
    "lucky": "def is_it(x):\n    return x % 2 == 0 and abs(x) < 100\n",
}


@pytest.fixture
def files(tmp_path):
    for name, source in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(source)
    return {name: str(tmp_path / f"{name}.py") for name in PROGRAMS}


@pytest.mark.parametrize(
    ("name", "code", "verdict", "suite"),
    [
        ("right", 0, "passed", "passed"),
        ("wrong", 1, "failed", "failed"),
        ("denied", 2, "invalid", "failed"),
        ("broken", 2, "invalid", "failed"),
        ("broken_late", 2, "invalid", "failed"),
        ("two", 2, "invalid", "failed"),
        ("other_argument", 2, "invalid", "failed"),
        ("lucky", 0, "passed", "failed"),
    ],
)
def test_json_and_exit_code(files, capsys, name, code, verdict, suite):
    assert command.main([files[name], "--family", "even", "--json"]) == code
    record = json.loads(capsys.readouterr().out)
    assert set(record) == {"verdict", "reason", "passed", "total", "property", "seconds"}
    assert (record["verdict"], record["property"], record["total"]) == (verdict, suite, 3)
    assert bool(record["reason"]) == (verdict != "passed")
    assert record["seconds"] > 0


def test_several_files_are_a_line_of_json_each(files, capsys):
    assert command.main([files["right"], files["denied"], files["wrong"], "--family", "even"]) == 2
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["verdict"] for record in records] == ["passed", "invalid", "failed"]


def test_one_file_is_a_sentence(files, capsys):
    command.main([files["right"], "--family", "even"])
    assert "right.py: passed, 3 of 3 reward cases, property passed, " in capsys.readouterr().out


def test_the_rule_and_its_place_are_explained(files, capsys):
    command.main([files["denied"], "--family", "even", "--explain"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["  syntax not allowed: Import (line 2, column 5)", "        import os", "        ^"]


def test_the_first_wrong_case_of_each_judge_is_explained(files, capsys):
    command.main([files["lucky"], "--family", "even", "--explain"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  reward: every case passed"
    assert lines[2].startswith("  property: case ")
    assert lines[2].endswith("gave False, not True")


def test_an_explanation_joins_the_json_only_if_asked(files, capsys):
    command.main([files["broken_late"], "--family", "even", "--json", "--explain"])
    assert "'break' outside loop" in json.loads(capsys.readouterr().out)["explanation"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py", "--family", "even"], "error: [Errno 2] No such file or directory: 'nowhere.py'"),
        (["{right}", "--family", "evne"], "error: family evne is unknown; did you mean even? allowed: increment, double"),
        (["{right}", "--family", "canary"], "error: family canary is unknown; allowed: increment, double"),
    ],
)
def test_bad_input_is_one_sentence_and_an_error(files, capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        command.main([argument.format(**files) for argument in arguments])
    error = capsys.readouterr().err
    assert caught.value.code == 3
    assert error.startswith(message)
    assert error.count("\n") == 1


def test_a_missing_family_shows_the_usage_with_all_families(files, capsys):
    with pytest.raises(SystemExit) as caught:
        command.main([files["right"]])
    error = capsys.readouterr().err
    assert caught.value.code == 3
    assert error.startswith("usage: python -m glint.verify")
    assert f"--family {{{','.join(FAMILIES)}}}" in " ".join(error.split())
    assert error.endswith("\nerror: the following arguments are required: --family\n")


def test_a_broken_sandbox_is_an_error(files, capsys, monkeypatch):
    def broken(self, candidates):
        raise VerifierError("the sandbox failed twice")

    monkeypatch.setattr(Verifier, "judge", broken)
    assert command.main([files["right"], "--family", "even", "--json"]) == 3
    record = json.loads(capsys.readouterr().out)
    assert (record["verdict"], record["reason"], record["property"]) == ("error", "the sandbox failed twice", "failed")
