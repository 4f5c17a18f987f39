"""Snakemake ready to start: a process that has imported it forks itself for each command, which spares each the imports.

As a script this is that process. It reads a command a line (JSON: `arguments`, `folder`, `environment`, `log`) and answers each with an
exit status. A child is what `python -m snakemake` would be, in its command's folder and environment. Of this project nothing is loaded
before the fork, so that a checkout's Snakefile loads its own code.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

LIBRARIES = ("snakemake.cli", "snakemake.report.html_reporter", "smart_open", "platformdirs", "grimp", "pydantic", "yaml")
"""What Snakemake and the Snakefile load for a dry run, but for this project."""


@cache
def _ready() -> subprocess.Popen[str]:
    """Start the process that forks; it ends with the one that asks."""
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def snakemake(arguments: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run Snakemake in `folder`; return its exit status and all that it and its jobs print."""
    process = _ready()
    assert process.stdin is not None
    assert process.stdout is not None
    with tempfile.NamedTemporaryFile() as log:
        command = {"arguments": arguments, "folder": str(folder), "environment": environment, "log": log.name}
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline()), log.read().decode()


def _serve() -> None:
    """Answer commands until the input ends; a child leaves to run its one."""
    for name in LIBRARIES:
        import_module(name)
    import_module("snakemake.cli").get_argument_parser()  # looks for plugins in all that is installed
    for line in sys.stdin:
        if os.fork() == 0:
            _become(json.loads(line))
            break
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)


def _become(command: dict[str, Any]) -> None:
    """Turn this process into the command."""
    with Path(command["log"]).open("wb") as log, Path(os.devnull).open("rb") as nothing:
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source.fileno(), target)
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    sys.path[0] = command["folder"]
    sys.argv = ["snakemake", *command["arguments"]]
    import_module("snakemake.cli").main()


if __name__ == "__main__":
    _serve()
