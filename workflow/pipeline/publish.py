"""Hand over what a trainer has written: from its private folder to the declared outputs, whole."""

import os
import shutil
from pathlib import Path

from glint.files import sha256, write_json

HALF_WRITTEN = shutil.ignore_patterns(".*")
"""What a kill in the middle of a write leaves behind: temporary names begin with a dot."""


def publish(finished: Path, folder: Path) -> None:
    """Link the checkpoints (folders) of `finished` into `folder`/checkpoints, its files into `folder`, and list the hashes of the weights.

    Links cost no space, and `finished` stays whole until the caller removes it: a kill in between loses nothing. The list is small and
    the same for the same weights, so Snakemake compares it by content and spares the stages downstream of an identical training.
    """
    checkpoints = folder / "checkpoints"
    for entry in sorted(finished.iterdir()):
        if entry.is_dir():
            shutil.copytree(entry, checkpoints / entry.name, copy_function=os.link, ignore=HALF_WRITTEN)
        elif not entry.name.startswith("."):
            (folder / entry.name).unlink(missing_ok=True)
            os.link(entry, folder / entry.name)
    weights = sorted(checkpoints.rglob("model.safetensors"))
    write_json(folder / "weights.json", {str(path.relative_to(checkpoints)): sha256(path) for path in weights})
