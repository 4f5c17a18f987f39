"""Show how far a run is, in a second terminal: jobs done, and the last line of every trainer at work (step, loss, time left)."""

import argparse
import contextlib
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "workflow")]  # people start it without the paths that Snakemake gives to jobs

from glint.terminal import ending_with_its_reader  # noqa: E402
from pipeline.progress import newest_run, text  # noqa: E402

CLEAR = "\033[H\033[2J"


def main() -> None:
    """Print the progress until the run ends or Ctrl-C, or once; on a terminal each time in the same place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", help="name of the run (default: the one in results/ that changed last)")
    parser.add_argument("--every", type=float, default=5, help="seconds between two looks (default: 5)")
    parser.add_argument("--once", action="store_true", help="look once")
    given = parser.parse_args()
    if not 0 < given.every < float("inf"):
        parser.error(f"--every {given.every:g} must be seconds above 0")
    run = given.run or newest_run(Path("results"))
    if run is None:
        sys.exit("error: there is no run in results/; one that has just begun shows itself after half a minute")
    with contextlib.suppress(KeyboardInterrupt), ending_with_its_reader():
        while True:
            try:
                shown, ended = text(Path(), run)
            except ValueError as error:
                sys.exit(f"error: {error}")
            print((CLEAR if sys.stdout.isatty() and not given.once else "") + shown, flush=True)
            if ended or given.once:
                return
            time.sleep(given.every)


if __name__ == "__main__":
    main()
