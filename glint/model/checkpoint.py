"""Checkpoints: `model.safetensors` and `config.json` (recipe and hash) in one folder, written whole or not at all."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from glint.config.model import ModelRecipe
from glint.files import read_json, replacing, sha256, write_json
from glint.model.decoder import Decoder

FORMAT_VERSION = 2
WEIGHTS = "model.safetensors"


def save(model: Decoder, folder: Path, *, base: Path | None = None) -> None:
    """Write all tensors of `model` to `folder`; with `base`, only the trainable ones and the hash of the base's weights.

    A block's matrices are written in the dtype that the model multiplies them in: half the size in bf16, the same completions.
    """
    named = model.state_dict() if base is None else model.trainable()
    narrow = model.matrix_names
    stored = {name: tensor.detach().to(model.dtype if name in narrow else tensor.dtype) for name, tensor in named.items()}
    tensors = {name: tensor.cpu().contiguous() for name, tensor in stored.items()}
    with replacing(folder / WEIGHTS) as temporary:
        try:
            save_file(tensors, temporary)
        except SafetensorError as error:
            raise OSError(f"{folder / WEIGHTS} could not be written ({error})") from error
    config: dict[str, Any] = {"format_version": FORMAT_VERSION, "model": model.recipe.model_dump(mode="json")}
    config["sha256"] = sha256(folder / WEIGHTS)
    if base is not None:
        config["base_sha256"] = sha256(base / WEIGHTS)
    write_json(folder / "config.json", config)


def load(folders: Iterable[Path], device: torch.device, dtype: torch.dtype) -> Decoder:
    """Return the model of the first folder with the tensors of the later ones laid over it, computing in `dtype`.

    Raises ValueError, naming the file, where one is missing, damaged, of another format, or made for other base weights.
    """
    base, *over = folders
    config = _config(base)
    model = Decoder(ModelRecipe.model_validate(config["model"]), dtype)
    _fill(model, base, config, complete=True)
    for folder in over:
        trained = _config(folder)
        if trained.get("base_sha256") != config.get("sha256"):
            raise ValueError(f"{folder} was trained from other weights than those in {base}")
        _fill(model, folder, trained, complete=False)
    return model.to(device)


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.exists():
        raise ValueError(f"no checkpoint in {folder}: {path.name} is missing")
    config: dict[str, Any] = read_json(path)
    if config.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"{path} has format version {config.get('format_version')}; this version of Glint reads {FORMAT_VERSION}")
    return config


def _fill(model: Decoder, folder: Path, config: dict[str, Any], *, complete: bool) -> None:
    path = folder / WEIGHTS
    tensors = _read(path)
    own = model.state_dict()
    wrong = [name for name, tensor in tensors.items() if name not in own or own[name].shape != tensor.shape]
    missing = sorted(set(own) - set(tensors)) if complete else []
    if wrong or missing:
        raise ValueError(f"{path} does not fit its config.json: {', '.join((wrong + missing)[:3])}")
    with torch.no_grad():
        for name, tensor in tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{path} holds a value that is not finite, in {name}")
            own[name].copy_(tensor)
    if sha256(path) != config.get("sha256"):
        raise ValueError(f"{path} is not what its config.json was written for (the hashes differ); delete {folder} and run again")


def _read(path: Path) -> dict[str, Tensor]:
    if not path.exists():
        raise ValueError(f"no checkpoint in {path.parent}: {path.name} is missing")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}); delete it and run again") from error
