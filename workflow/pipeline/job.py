"""What every script does around its one call: read its arguments, end with Snakemake, and end bad input in one sentence."""

import argparse
import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glint.files import write_text

PR_SET_PDEATHSIG = 1


def arguments(description: str | None, paths: str, optional: str = "") -> argparse.Namespace:
    """Parse the command line: `--job` (JSON), `--parent` (a process) and a path for each name in `paths` and `optional`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--job", help="the slice of the recipe that this job reads, as JSON")
    parser.add_argument("--parent", type=int, help="process with which this one ends")
    for name in paths.split():
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in optional.split():
        parser.add_argument(f"--{name}", type=Path)
    return parser.parse_args()


@contextmanager
def job(given: argparse.Namespace, recipe: Path | None = None, *foreseen: type[Exception]) -> Iterator[None]:
    """Run the body as a job: it ends with its parent, and bad input or a `foreseen` error is one sentence. Then write `recipe`."""
    expected: tuple[type[Exception], ...] = (ValueError, OSError, *foreseen)
    if given.parent is not None:
        follow(given.parent)
    try:
        yield
        if recipe is not None:
            write_text(recipe, given.job + "\n")
    except expected as error:
        sys.exit(f"error: {error}")
    except (EOFError, pickle.UnpicklingError) as error:
        sys.exit(f"error: the compiled loops in glint/model/__pycache__ are damaged ({error}); delete that folder and run again")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        sys.exit(f"error: this machine has not the memory that the config asks for ({str(error).splitlines()[0]})")


def follow(parent: int) -> None:
    """Ask the kernel to terminate this process when `parent` ends, so that a killed pipeline leaves no job behind (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("error: the pipeline that started this job has ended")
