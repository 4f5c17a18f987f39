"""TensorBoard logs: every number of the metrics comes back at its place, by the framing and the protocol of the format."""

import json
import struct

import pytest
from tensorboardX.proto.event_pb2 import Event

from glint.report.events import write_events

PRETRAINING = [
    {"step": 1, "loss": 5.5, "lr": 0.001, "seconds": 2.0},
    {"step": 2, "loss": 5.25, "lr": 0.001, "seconds": 3.5},
]
RL = [{"group": 0, "family": "double", "reward_mean": 0.5, "updated": True, "loss": None, "seconds": 1.0}]


def events(folder):
    """Return the events of the only file: records of length, checksum, bytes, checksum."""
    (path,) = folder.iterdir()
    data, place, found = path.read_bytes(), 0, []
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        found.append(Event.FromString(data[place + 12 : place + 12 + length]))
        place += length + 16
    return found


def scalars(folder):
    return {(one.step, value.tag): value.simple_value for one in events(folder) for value in one.summary.value}


def written(tmp_path, lines):
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_events(metrics, tmp_path / "events")
    return metrics, tmp_path / "events"


@pytest.mark.parametrize("lines", [PRETRAINING, RL])
def test_every_number_comes_back_at_its_step_or_group(tmp_path, lines):
    _, folder = written(tmp_path, lines)
    expected = {
        (line.get("step", line.get("group")), name): pytest.approx(float(value))
        for line in lines
        for name, value in line.items()
        if name not in ("step", "group", "family") and value is not None
    }
    assert scalars(folder) == expected


def test_times_are_those_of_the_training(tmp_path):
    metrics, folder = written(tmp_path, PRETRAINING)
    times = {one.step: one.wall_time for one in events(folder) if one.summary.value}
    assert times == {1: pytest.approx(metrics.stat().st_mtime - 1.5), 2: pytest.approx(metrics.stat().st_mtime)}
