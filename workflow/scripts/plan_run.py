"""Say what a run will take before it begins: jobs, CPU hours, memory and time, from what Snakemake would do and from measured rates."""

import argparse
import json
import shlex
import subprocess
import sys
import time

from glint.config.tree import Config
from glint.terminal import failing_in_one_sentence
from pipeline.estimate import REFERENCE, Rates
from pipeline.plan import Plan
from pipeline.planning import read, report
from pipeline.rates import of_this_machine


def main() -> None:
    """Print the plan of the run `--job` on `--cores`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True, help="the whole config, as JSON")
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--snakemake", required=True, help="the command that says what is to do, without its options")
    parser.add_argument("--reference", action="store_true", help="plan with the rates of the reference machine, and measure nothing")
    parser.add_argument("--priorities", type=json.loads, required=True, help="of the rules that have one, as JSON")
    given = parser.parse_args()
    plan = Plan(Config.model_validate_json(given.job))
    with failing_in_one_sentence():
        rates, said = (REFERENCE, "those of the reference machine") if given.reference else measured(given.cores)
        planned = list(read(summary(given.snakemake), plan))
        lines = list(report(plan, planned, rates, given.cores, given.priorities))
    print(*lines, sep="\n")
    print(f"Rates: {said}. No rate of a GPU has been measured: every job is counted as on a CPU.", flush=True)


def measured(cores: int) -> tuple[Rates, str]:
    """Return this machine's rates for so many jobs side by side, and where they come from."""
    found = of_this_machine(cores)
    minutes = round((time.time() - found.measured) / 60)
    crowded = f"with {found.cores} jobs at work a training step takes {found.crowding:.2f} times as long as alone"
    return found.at(cores), f"measured on this machine {minutes} minutes ago; {crowded}"


def summary(command: str) -> str:
    """Return Snakemake's list of all files, with the plan for each."""
    asked = [*shlex.split(command), "--summary"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr or "error: Snakemake could not plan this run")
    return done.stdout


if __name__ == "__main__":
    main()
