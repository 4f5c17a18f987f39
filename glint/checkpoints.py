"""Checkpoints on disk: which there are, which study they belong to, and over which weights the tensors of RL are laid."""

from pathlib import Path

from glint.files import read_json
from glint.manifest import Manifest
from glint.model.checkpoint import WEIGHTS


def is_checkpoint(folder: Path) -> bool:
    """Return whether `folder` is a checkpoint itself."""
    return (folder / "config.json").is_file() and (folder / WEIGHTS).is_file()


def checkpoints_below(folder: Path) -> list[Path]:
    """Return every checkpoint below `folder`, by path, without those of trainers at work, which hidden folders hold."""
    found = [path.parent for path in folder.rglob(WEIGHTS) if is_checkpoint(path.parent)]
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def described(run: Path) -> dict[Path, str]:
    """Return, by folder of a training of the run in `run`, its study, arm and seed; of shared ones those of the first arm.

    Nothing where the run has no manifest yet.
    """
    path = run / "manifest.json"
    if not path.exists():
        return {}
    manifest = Manifest.load(path)
    receipts = [one for role in ("pretrain_receipt", "rl_receipt") for one in manifest.distinct(role)]
    # the manifest names paths from the folder above `results`; the run may have been moved since
    return {run / Path(*path.parts[-4:-1]): f"study {entry.study}, arm {entry.arm}, seed {entry.seed}" for entry, path in receipts}


def layers(checkpoint: Path, base: Path | None = None, *, remedy: str = "name theirs with --base") -> list[Path]:
    """Return the folders that `glint.model.checkpoint.load` needs for `checkpoint`: itself, or its base and then itself.

    The base of what RL has trained is found by its hash among the pretraining checkpoints of the same run.
    Raises ValueError, whose sentence ends with the `remedy`, where it is not there, and where a whole model is given a base.
    """
    config = read_json(checkpoint / "config.json")
    wanted = config.get("base_sha256") if isinstance(config, dict) else ""
    if wanted is not None and not (isinstance(wanted, str) and wanted):
        raise ValueError(f"{checkpoint}/config.json is not that of a checkpoint")
    if wanted is None:
        if base is not None:
            raise ValueError(f"{checkpoint} holds a whole model, so it has no base; leave --base out")
        return [checkpoint]
    if base is not None:
        return [base, checkpoint]
    pretrained = next((parent / "pretrain" for parent in checkpoint.absolute().parents if (parent / "pretrain").is_dir()), None)
    for path in checkpoints_below(pretrained) if pretrained else []:
        if read_json(path / "config.json").get("sha256") == wanted:
            return [path, checkpoint]
    where = f"no checkpoint in {pretrained} has these" if pretrained else "no folder above it is that of a run"
    raise ValueError(
        f"{checkpoint} holds what RL has trained, to be laid over weights whose SHA-256 begins with {wanted[:12]}; {where}, so {remedy}"
    )
