"""Results that checkouts share: taken only where recipe, code, inputs and libraries agree, and only whole."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from pipeline import shared
from tests.pipeline.checkout import ROOT, Checkout, environment

TRAINING = "results/tiny/pretrain"


@pytest.fixture
def entry(tmp_path):
    """Give a result, a folder and two files, and return its entry, what it was made from, and where another run wants it."""
    own, wanted = tmp_path / "own", tmp_path / "wanted"
    (own / "checkpoints/step-1").mkdir(parents=True)
    (own / "checkpoints/step-1/weights").write_bytes(b"\0\1")
    (own / "checkpoints/.snakemake_timestamp").touch()
    (own / "metrics").write_text("loss\n")
    (own / "recipe").write_text("{}")
    names = ("checkpoints", "metrics", "recipe")
    (tmp_path / "folder").mkdir()
    made = {"code": "c", "inputs": []}
    shared.give([own / name for name in names], made, tmp_path / "folder/pretrain/k")
    return tmp_path / "folder/pretrain/k", made, [wanted / name for name in names]


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_taken_is_what_was_given(entry, tmp_path):
    folder, made, outputs = entry
    assert shared.taken(folder, made, outputs)
    own = contents(tmp_path / "own")
    del own["checkpoints/.snakemake_timestamp"]
    assert contents(tmp_path / "wanted") == own
    assert contents(folder).keys() == own.keys() | {shared.LIST}
    assert os.listdir(folder.parent) == ["k"]


def damage(folder, how):
    if how == "a byte":
        (folder / "checkpoints/step-1/weights").write_bytes(b"\0\2")
    elif how == "cut":
        (folder / "metrics").write_text("lo")
    elif how == "gone":
        (folder / "recipe").unlink()
    elif how == "no list":
        (folder / shared.LIST).unlink()
    elif how == "half a list":
        (folder / shared.LIST).write_text('{"files": {')
    elif how == "a way out":
        listed = json.loads((folder / shared.LIST).read_text())
        listed["files"]["checkpoints/../../escaped"] = "0" * 64
        (folder / shared.LIST).write_text(json.dumps(listed))
    else:
        listed = json.loads((folder / shared.LIST).read_text())
        (folder / shared.LIST).write_text(json.dumps(listed | {"made_from": {"code": "another"}}))


@pytest.mark.parametrize("how", ["a byte", "cut", "gone", "no list", "half a list", "a way out", "another's list"])
def test_nothing_is_taken_of_a_damaged_entry_which_makes_room(entry, tmp_path, how, capsys):
    folder, made, outputs = entry
    damage(folder, how)
    assert not shared.taken(folder, made, outputs)
    assert capsys.readouterr().out.startswith("not taken: ")
    assert contents(tmp_path / "wanted") == {}
    assert not folder.exists()


def test_an_entry_that_is_there_stays(entry, tmp_path):
    folder, made, _ = entry
    before = contents(folder)
    (tmp_path / "own/metrics").write_text("other\n")
    with pytest.raises(FileExistsError):
        shared.give([tmp_path / "own/metrics"], made, folder)
    assert contents(folder) == before
    assert os.listdir(folder.parent) == ["k"]


def test_the_key_is_of_all_that_decides_the_bytes(tmp_path, monkeypatch):
    (tmp_path / "input").write_text("tokens")
    (tmp_path / "other").write_text("tokens!")

    def named(code="c", recipe="{}", name="input"):
        return shared.key(shared.made_from(code, recipe, [tmp_path / name]))

    same = named()
    assert named() == same
    names = {same, named(code="d"), named(recipe='{"steps":1}'), named(name="other")}
    monkeypatch.setattr(shared, "version", lambda name: "0.1" if name == "torch" else "1")
    assert len(names | {named()}) == 5


def launching(tmp_path, *command):
    """Return how to run a job behind the shared folder: the command, and what it runs in."""
    own = [f"--parent={os.getpid()}", f"--folder={tmp_path / 'folder'}", "--name=stage", "--code=c", "--inputs", "--outputs", "made"]
    modules = environment() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'workflow'}"}
    return [sys.executable, "-m", "pipeline.shared", *own, "--", *command], {"cwd": tmp_path, "env": modules}


def launched(tmp_path, *command):
    """Run a job behind the shared folder."""
    line, where = launching(tmp_path, *command)
    return subprocess.run(line, capture_output=True, text=True, check=False, **where)


def test_a_failed_job_shares_nothing_and_fails(tmp_path):
    run = launched(tmp_path, "sh", "-c", "echo half > made; exit 3")
    assert run.returncode == 3
    assert not (tmp_path / "folder").exists()


def test_a_result_that_cannot_be_shared_is_still_the_runs_own(tmp_path):
    (tmp_path / "folder").write_text("not a folder")
    run = launched(tmp_path, "sh", "-c", "echo whole > made")
    assert run.returncode == 0
    assert (tmp_path / "made").read_text() == "whole\n"
    assert "not shared: " in run.stdout


@pytest.mark.parametrize("group", [False, True])
def test_a_job_that_is_told_to_end_saves_its_state_before_its_keeper_ends(tmp_path, group):
    (tmp_path / "folder").mkdir()
    line, where = launching(
        tmp_path, "sh", "-c", "trap 'sleep 1; echo kept > state; exit 143' TERM; touch ready; while :; do sleep 0.1; done"
    )
    keeper = subprocess.Popen(line, start_new_session=True, **where)
    while not (tmp_path / "ready").exists():
        assert keeper.poll() is None
        time.sleep(0.05)
    os.killpg(keeper.pid, signal.SIGTERM) if group else keeper.send_signal(signal.SIGTERM)
    assert keeper.wait(60) == 143
    assert (tmp_path / "state").read_text() == "kept\n"
    assert list((tmp_path / "folder").iterdir()) == []


def test_whoever_may_write_into_the_shared_folder_may_write_into_its_stages(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder").chmod(0o777)
    assert launched(tmp_path, "sh", "-c", "echo whole > made").returncode == 0
    assert (tmp_path / "folder/stage").stat().st_mode & 0o777 == 0o777


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory):
    """Two checkouts with one training, and an empty folder that they share."""
    base = tmp_path_factory.mktemp("two")
    (base / "shared").mkdir()
    pair = [Checkout.fresh(base / name) for name in ("a", "b")]
    for checkout in pair:
        path = checkout.path / "tiny.yaml"
        config = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump(config | {"studies": {"main": config["studies"]["main"]}, "shared": str(base / "shared")}))
    return [*pair, base / "shared"]


def log(checkout):
    (path,) = (checkout.path / "results/tiny/logs/pretrain").glob("*/seed-3.log")
    return path.read_text()


def pretrained_again(checkout):
    """Pretrain in a checkout that has forgotten all results; return the log of the job."""
    for name in ("results", ".snakemake"):
        shutil.rmtree(checkout.path / name, ignore_errors=True)
    checkout.snakemake("--cores", "1", "pretrain")
    return log(checkout)


def test_a_second_checkout_takes_what_the_first_has_trained(checkouts):
    first, second, folder = checkouts
    assert "shared as " in pretrained_again(first)
    assert pretrained_again(second).startswith(f"taken from {folder}/pretrain/")
    assert first.results() == second.results()
    receipts = [next(checkout.path.glob(f"{TRAINING}/*/seed-3/receipt.json")).read_bytes() for checkout in (first, second)]
    assert receipts[0] == receipts[1]  # seconds too: nothing was trained
    assert second.planned("pretrain") == {}

    second.edit("glint/train/pretrain.py", "def pretrain(", "EDITED = True\n\n\ndef pretrain(")
    second.snakemake("--cores", "1", "pretrain")
    assert "shared as " in log(second)
    assert len(list((folder / "pretrain").iterdir())) == 2

    for weights in (folder / "pretrain").rglob("model.safetensors"):
        weights.write_bytes(weights.read_bytes()[:-1])
    said = pretrained_again(first)
    assert said.startswith(f"not taken: {folder}/pretrain/")
    assert "shared as " in said
    assert first.results() | second.results() == first.results()


def test_a_folder_that_is_not_there_is_one_sentence(checkouts):
    text = checkouts[0].snakemake("--dry-run", "--config", "shared=/absent", succeeds=False)
    assert "Config error: shared /absent: there is no such folder" in text
    assert "Traceback" not in text
