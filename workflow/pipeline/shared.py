"""Results that runs, checkouts and people share: a job whose result lies in the shared folder takes it instead of computing it.

`python -m pipeline.shared --folder FOLDER --name NAME --code HASH --inputs .. --outputs .. -- COMMAND` takes the entry of this very job,
or runs COMMAND and gives what it has made. An entry is a folder that is named by all that decides the bytes: the job's recipe, the
fingerprint of its code, the content of its inputs, and the versions of the libraries that compute. It appears whole (written beside,
then renamed), lists the hash of each of its files, and is copied, never linked; nothing is taken of an entry with one wrong hash.
"""

import argparse
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from glint.files import read_json, sha256, write_json
from pipeline.job import follow

COMPUTING = ("torch", "numpy", "numba", "pandas", "pyarrow", "safetensors")
"""Packages that decide the bytes of a result."""
LIST = "entry.json"
"""The list of an entry: what it was made from, and the hash of each file."""


class DamagedError(Exception):
    """An entry that must not be taken; the message says why."""


def made_from(code: str, recipe: str, inputs: Sequence[Path]) -> dict[str, Any]:
    """Return what decides the bytes of a result: code, recipe, content of the inputs, versions of what computes."""
    return {
        "code": code,
        "recipe": recipe,
        "inputs": [{name: sha256(path) for name, path in files_of(given)} for given in inputs],
        "versions": {name: version(name).partition("+")[0] for name in COMPUTING},
    }


def key(made: dict[str, Any]) -> str:
    """Return the name of the entry that was made so."""
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:32]


def files_of(result: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of one result, a file or a folder, by their name as seen from where it lies; hidden ones belong to Snakemake."""
    inside = result.rglob("*") if result.is_dir() else [result]
    for path in sorted(path for path in inside if path.is_file() and not path.name.startswith(".")):
        yield str(path.relative_to(result.parent)), path


def give(outputs: Sequence[Path], made: dict[str, Any], entry: Path) -> None:
    """Copy `outputs` into the shared folder as `entry`, whole or not at all; an entry that is there already stays."""
    stage, folder = entry.parent, entry.parents[1]
    with contextlib.suppress(FileExistsError):
        stage.mkdir()  # not its parents: a folder that has vanished is not made anew
        stage.chmod(stat.S_IMODE(folder.stat().st_mode))  # whoever may write into the shared folder may write here
    with _beside(entry) as new:
        hashes = {name: _copy(path, new / name) for output in outputs for name, path in files_of(output)}
        write_json(new / LIST, {"made_from": made, "files": hashes})
        if entry.exists():
            raise FileExistsError(f"{entry} is there already")
        new.rename(entry)


def take(entry: Path, made: dict[str, Any], outputs: Sequence[Path]) -> None:
    """Copy the files of `entry` to where `outputs` shall lie; if one is wrong, raise DamagedError with nothing there."""
    with _beside(outputs[0]) as new:
        for name, wanted in _listed(entry, made, outputs).items():
            if not (entry / name).is_file() or _copy(entry / name, new / name) != wanted:
                raise DamagedError(f"{entry / name} is damaged")
        for output in outputs:
            (new / output.name).rename(output)


def _listed(entry: Path, made: dict[str, Any], outputs: Sequence[Path]) -> dict[str, str]:
    """Return the hashes of an entry's files, by name; raises DamagedError where they are not those of `outputs`."""
    try:
        listed = read_json(entry / LIST)
        files: dict[str, str] = listed["files"]
        tops = {os.path.normpath(name).split(os.sep)[0] for name in files}  # of a name that leads out of the entry: `..`, or nothing
        if listed["made_from"] != made or tops != {output.name for output in outputs}:
            raise DamagedError(f"{entry / LIST} is of another result")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedError(f"{entry / LIST} is damaged ({error})") from error
    return files


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path`, hidden, with the permissions of any folder; what is left of it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as held:
        whole = Path(held) / path.name
        whole.mkdir()
        yield whole


def _copy(source: Path, target: Path) -> str:
    """Copy the bytes of a file to the disk, and return the SHA-256 of what lies there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as given, target.open("xb") as taken:
        shutil.copyfileobj(given, taken)
        taken.flush()
        os.fsync(taken.fileno())
    return sha256(target)


def taken(entry: Path, made: dict[str, Any], outputs: Sequence[Path]) -> bool:
    """Take the entry if it is there and whole, and say so; a damaged one makes room for the one that this job will give."""
    if not entry.exists():
        return False
    try:
        take(entry, made, outputs)
    except DamagedError as error:
        print(f"not taken: {error}; this job computes its result itself", flush=True)
        aside = entry.with_name(f".{entry.name}.{secrets.token_hex(4)}")  # of another's entry one may not delete the files
        entry.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
        return False
    print(f"taken from {entry}", flush=True)
    return True


def run(command: Sequence[str]) -> int:
    """Run the job and return its exit status, as a shell counts it."""
    with subprocess.Popen(command) as job:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the job too, which ends in its own way
        # A job that is told to end saves its state first; this process must not be gone before, or Snakemake takes the job for ended.
        signal.signal(signal.SIGTERM, lambda *_: job.send_signal(signal.SIGTERM))
        status = job.wait()
    return status if status >= 0 else 128 - status


def main() -> None:
    """Take the result or make it; one that cannot be given to the others is still this run's own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parent", type=int, required=True, help="process with which this one ends")
    parser.add_argument("--folder", type=Path, required=True, help="the shared folder")
    parser.add_argument("--name", required=True, help="what is made, a folder in the shared one")
    parser.add_argument("--code", required=True, help="fingerprint of the code")
    parser.add_argument("--recipe", default="", help="slice of the recipe that the job reads, as JSON")
    parser.add_argument("--inputs", type=Path, nargs="*", default=[])
    parser.add_argument("--outputs", type=Path, nargs="+", required=True)
    separator = sys.argv.index("--")
    given, command = parser.parse_args(sys.argv[1:separator]), sys.argv[separator + 1 :]
    follow(given.parent)
    made = made_from(given.code, given.recipe, given.inputs)
    entry = given.folder / given.name / key(made)
    try:
        if taken(entry, made, given.outputs):
            return
    except OSError as error:
        print(f"not taken: {error}; this job computes its result itself", flush=True)
    if status := run(command):
        sys.exit(status)
    try:
        give(given.outputs, made, entry)
        print(f"shared as {entry}", flush=True)
    except OSError as error:
        print(f"not shared: {error}", flush=True)


if __name__ == "__main__":
    main()
