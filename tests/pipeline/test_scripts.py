"""What the scripts decide themselves: which folders make up a checkpoint, and how results are handed over."""

import argparse
import hashlib
import json
import runpy
from pathlib import Path

import pytest

from pipeline.job import job
from pipeline.publish import publish
from tests.pipeline.checkout import ROOT

layers = runpy.run_path(str(ROOT / "workflow/scripts/evaluate.py"))["layers"]


@pytest.fixture
def folders(tmp_path):
    """A pretrained folder, a selection, an RL folder."""
    selection = tmp_path / "selection.json"
    selection.write_text(json.dumps({"checkpoint": "step-0100"}))
    return tmp_path / "pretrained", selection, tmp_path / "trained"


def test_pretraining_steps_are_folders_of_their_own(folders):
    pretrained, _, _ = folders
    assert layers(("step-0060", "step-0100"), pretrained, None, None) == {
        "step-0060": (pretrained / "step-0060",),
        "step-0100": (pretrained / "step-0100",),
    }


def test_the_start_goes_by_its_own_name(folders):
    pretrained, selection, _ = folders
    assert layers((), pretrained, selection, None) == {"step-0100": (pretrained / "step-0100",)}


def test_rl_is_laid_over_the_start(folders):
    pretrained, selection, trained = folders
    assert layers(("groups-000", "groups-024"), pretrained, selection, trained) == {
        "groups-000": (pretrained / "step-0100",),
        "groups-024": (pretrained / "step-0100", trained / "groups-024"),
    }


def test_publish_hands_over_everything_and_keeps_the_source(tmp_path):
    source, target = tmp_path / "out", tmp_path / "results"
    (source / "step-0001").mkdir(parents=True)
    (source / "step-0001/model.safetensors").write_bytes(b"weights")
    (source / "metrics.jsonl").write_text("{}\n")
    target.mkdir()
    (target / "metrics.jsonl").write_text("from an earlier, unfinished attempt\n")
    publish(source, target)
    assert (target / "checkpoints/step-0001/model.safetensors").read_bytes() == b"weights"
    assert (target / "metrics.jsonl").read_text() == "{}\n"
    assert json.loads((target / "weights.json").read_text()) == {"step-0001/model.safetensors": hashlib.sha256(b"weights").hexdigest()}
    assert (source / "step-0001/model.safetensors").exists()


def test_what_a_kill_left_half_written_is_not_handed_over(tmp_path: Path) -> None:
    step = tmp_path / "finished" / "step-0001"
    step.mkdir(parents=True)
    for path in (step / "model.safetensors", step / ".model.safetensors.x1", tmp_path / "finished" / ".metrics.jsonl.x2"):
        path.write_text("bytes")
    publish(tmp_path / "finished", tmp_path / "out")
    handed_over = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert handed_over == ["checkpoints/step-0001/model.safetensors", "weights.json"]


NOTHING = argparse.Namespace(job=None, parent=None)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            EOFError("no input"),
            r"^error: the compiled loops .* are damaged \(no input\); delete that folder and run again$",
        ),
        (
            RuntimeError("[enforce fail] can't allocate memory: you tried\nmore"),
            r"^error: this machine has not the memory .*tried\)$",
        ),
        (MemoryError("too large"), r"^error: this machine has not the memory that the config asks for \(too large\)$"),
    ],
)
def test_what_the_machine_lacks_is_one_sentence(error, sentence):
    with pytest.raises(SystemExit, match=sentence), job(NOTHING):
        raise error


def test_a_fault_of_the_program_keeps_its_traceback():
    with pytest.raises(RuntimeError, match="shapes"), job(NOTHING):
        raise RuntimeError("shapes do not match")
