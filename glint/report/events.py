"""Training metrics as TensorBoard logs, made after the fact: the trainers know nothing of them."""

import json
from pathlib import Path

from tensorboardX import SummaryWriter

POSITIONS = ("step", "group")
"""Keys of a line of `metrics.jsonl` that say where in the training it stands: optimiser step, or group of RL."""


def write_events(metrics: Path, folder: Path) -> None:
    """Write every number of the lines of `metrics` as a scalar into an event file in `folder`, at its step or group.

    The times are those of the training, as far as they are known: the file's date is taken for that of its last line.
    """
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    began = metrics.stat().st_mtime - lines[-1]["seconds"] if lines else 0.0
    with SummaryWriter(str(folder)) as writer:
        for line in lines:
            position = next(line[name] for name in POSITIONS if name in line)
            for name, value in line.items():
                if name not in POSITIONS and isinstance(value, int | float):  # a group without an update has no loss
                    writer.add_scalar(name, float(value), position, walltime=began + line["seconds"])
