"""Every command that README.md and the pages of docs tell a reader to type is run here, the long ones as dry runs.

A command for which no rule below says how to run it fails: none is skipped in silence.
"""

import importlib.util
import itertools
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import pytest

from glint import check
from glint.config.model import ModelRecipe
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.randomness import torch_generator
from tests.pipeline import engine
from tests.pipeline.checkout import ROOT, Checkout, environment

PAGES = (
    "README.md",
    "config/README.md",
    "results/README.md",
    "reports/README.md",
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
)
EXPERIMENT = ROOT / "docs/your-own-experiment.md"
DENSE = ModelRecipe(linear="none", sparse="dense", residual="single", ffn="dense", width=12, layers=2, heads=3, ffn_hidden=16, context=160)


def commands(page: str) -> list[str]:
    """Return the commands of a page's `sh` blocks, a line each (continued lines joined), without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.replace("\\\n", " "), re.DOTALL | re.MULTILINE)
    lines = [re.sub(r"(^|\s+)# .*", "", line) for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.strip()]


COMMANDS = {page: commands((ROOT / page).read_text(encoding="utf-8")) for page in PAGES}


class Places:
    """Where commands run: a checkout without results for Snakemake, and a folder with a run's results for the doors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._plans: dict[tuple[str, ...], str] = {}

    @cached_property
    def code(self) -> Path:
        """A copy of the code, with the config that the page on experiments tells a reader to save."""
        checkout = Checkout.fresh(self.folder / "code")
        (checkout.path / "config/mine.yaml").write_text(self.experiment)
        return checkout.path

    @cached_property
    def results(self) -> Path:
        """A folder with checkpoints and tables of two runs, `quick` and `mine`, and the files that other commands write."""
        folder = self.folder / "run"
        checkpoint.save(
            Decoder(DENSE).initialise(torch_generator(1, "commands")), folder / "results/quick/pretrain/0a/seed-42/checkpoints/step-0100"
        )
        for run in ("quick", "mine", "reference/published"):
            shutil.copytree(
                ROOT / "reports/reference/published", folder / "reports" / run, ignore=shutil.ignore_patterns("figures", "*.html")
            )
        for name in ("config", "results/quick/logs"):
            (folder / name).mkdir()
        (folder / "config/mine.yaml").write_text(self.experiment)
        for command in {command for found in COMMANDS.values() for command in found if re.fullmatch(WRITES, command)}:
            subprocess.run(["sh", "-c", command], cwd=folder, check=True)
        return folder

    @cached_property
    def experiment(self) -> str:
        """The first config of the page on experiments."""
        found = re.search(r"```yaml\n(.*?)```", EXPERIMENT.read_text(encoding="utf-8"), re.DOTALL)
        assert found is not None
        return found[1]

    def snakemake(self, *arguments: str) -> str:
        """Run Snakemake in the checkout; return what it prints."""
        status, text = engine.snakemake([*arguments], self.code, environment())
        assert status == 0, text
        return text

    @cached_property
    def rules(self) -> set[str]:
        """The names of all rules."""
        return set(re.findall(r"^(\w+)", self.snakemake("--list-rules"), re.MULTILINE))

    def plan(self, config: tuple[str, ...]) -> str:
        """Return what a dry run with these options on configs says; commands with the same ones share it."""
        if config not in self._plans:
            self._plans[config] = self.snakemake("--dry-run", *config)
        return self._plans[config]


def run_snakemake(command: str, places: Places, _: pytest.MonkeyPatch) -> None:
    """Let Snakemake run the command as it stands; it draws or lists and starts no job."""
    assert places.snakemake(*shlex.split(command)[1:])


def plan_snakemake(command: str, places: Places, _: pytest.MonkeyPatch) -> None:
    """Have Snakemake read the command's options, know its targets, and plan its config.

    A profile has to be there; what it says, with plugins that are not installed here, is tested in `tests/pipeline`.
    """
    from snakemake.cli import parse_args  # type: ignore[import-untyped]

    assert all((ROOT / profile / "profile.yaml").is_file() for profile in re.findall(PROFILE, command)), command
    said = re.sub(PROFILE, "", command).replace(SHARED, str(places.folder))
    words = itertools.dropwhile(lambda word: "=" in word, shlex.split(said))  # variables of the environment come before the command
    asked = parse_args(list(words)[1:])[1]
    assert {*asked.targets, *(asked.forcerun or ())} <= places.rules
    options = {"--configfile": asked.configfile, "--config": asked.config}
    config = (word for option, given in options.items() if given for word in (option, *map(str, given)))
    assert "render_report" in places.plan(tuple(config))


def plan_make(command: str, *_: object) -> None:
    """Let make print what it would do."""
    assert subprocess.run([*shlex.split(command), "-n"], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def run_shell(command: str, places: Places, _: pytest.MonkeyPatch) -> None:
    """Run the line in a shell."""
    subprocess.run(["sh", "-c", command], cwd=places.results, check=True)


def run_door(command: str, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the module's `main` in this process: CHECKPOINT is a small dense model, and of a model's checks the first is made."""
    (model,) = places.results.glob("results/quick/pretrain/*/*/checkpoints/*")
    _, _, module, *arguments = (str(model) if word == "CHECKPOINT" else word for word in shlex.split(command))
    monkeypatch.chdir(places.results)
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    monkeypatch.setattr(check, "CHECKS", dict([next(iter(check.CHECKS.items()))]))
    monkeypatch.setattr("sys.stdin", (places.results / "config/mine.yaml").open())  # lines to read, should the command ask for some
    try:
        code = importlib.import_module("glint.verify.__main__" if module == "glint.verify" else module).main()
    except SystemExit as ended:
        code = ended.code
    assert code in (None, 0), code


def look_once(command: str, places: Places, _: pytest.MonkeyPatch) -> None:
    """Run a script that looks again and again until the run ends, for one look."""
    script, *arguments = shlex.split(command)[1:]
    subprocess.run([sys.executable, str(ROOT / script), *arguments, "--once"], cwd=places.results, env=environment(), check=True)


def read_only(command: str, *_: object) -> None:
    """Have a shell read the line, and find the files that it names: it is for another program, or changes what is not ours."""
    subprocess.run(["sh", "-n", "-c", command], check=True)
    for path in re.findall(r"--(?:file|requirement) (\S+)", command):
        assert (ROOT / path).is_file(), path


def find_module(command: str, *_: object) -> None:
    """Find the module: what it starts has tests of its own."""
    assert importlib.util.find_spec(command.rsplit(maxsplit=1)[-1]) is not None


WRITES = r"printf .* > \w+\.py"
SHARED = "/data/glint-shared"
"""A folder that is not on the machine of the tests."""
PROFILE = r"--workflow-profile (\S+)"
RULES: dict[str, Callable[[str, Places, pytest.MonkeyPatch], None]] = {
    r"make [a-z]+( TORCH_INDEX=\S+)?": plan_make,
    r"snakemake .*(--list-rules|--rulegraph).*": run_snakemake,
    r"(\w+=\S+ )?snakemake\b.*": plan_snakemake,
    r"python -m glint\.\w+\b.*": run_door,
    r"python workflow/scripts/watch\.py.*": look_once,
    WRITES: run_shell,
    r"python -m tests\.pipeline\.cluster": find_module,
    r"(docker|export|git|mkdir|pip|source|tmux) .*": read_only,
}


def how(command: str) -> Callable[[str, Places, pytest.MonkeyPatch], None]:
    """Return how a command is tested; fails where nothing says it."""
    found = [run for pattern, run in RULES.items() if re.fullmatch(pattern, command)]
    assert found, f"no rule says how to test {command!r}"
    return found[0]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("commands"))


@pytest.mark.parametrize("command", list(dict.fromkeys(command for found in COMMANDS.values() for command in found)))
def test_every_command_runs(command: str, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    how(command)(command, places, monkeypatch)


def test_commands_are_found_and_one_that_no_rule_knows_fails() -> None:
    found = commands("```sh\nmake quick   # minutes\n# a comment\n\nrm -rf results\n```\n```yaml\nrun: mine\n```\n")
    assert found == ["make quick", "rm -rf results"]
    with pytest.raises(AssertionError, match="no rule says how to test 'rm -rf results'"):
        how(found[1])
    assert {page for page, known in COMMANDS.items() if known} >= {"README.md", "docs/caching.md", "docs/your-own-experiment.md"}


def test_a_command_that_is_wrong_fails(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        plan_snakemake("snakemake --corse all", places, monkeypatch)
    with pytest.raises(AssertionError, match="unknown"):
        run_door("python -m glint.power reports/quick --study nowhere", places, monkeypatch)
    with pytest.raises(subprocess.CalledProcessError):
        plan_make("make qiuck")
