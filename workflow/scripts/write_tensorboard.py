"""Write the training metrics of every job of a config as TensorBoard logs."""

import shutil
from pathlib import Path

from glint.config.tree import Config
from glint.report.events import write_events
from pipeline.job import arguments, job
from pipeline.plan import Plan


def folders(plan: Plan, stages: tuple[str, ...] = ("pretrain", "rl", "expressions", "vision", "recall")) -> dict[str, str]:
    """Return the folder of every training's results by a name that a reader knows: the first study and arm that need it."""
    found: dict[str, str] = {}
    for run in plan.runs:
        for stage in stages:
            if stage in run.stages and (folder := plan.folder(run.stages[stage])) not in found.values():
                found[f"{stage}/{run.study}.{run.arm}/seed-{run.stages[stage].seed}"] = folder
    return found


def main() -> None:
    """Write the folder `out` anew, a folder a training."""
    given = arguments(__doc__, "out")
    with job(given):
        shutil.rmtree(given.out, ignore_errors=True)
        for name, folder in folders(Plan(Config.model_validate_json(given.job))).items():
            write_events(Path(folder) / "metrics.jsonl", given.out / name)


if __name__ == "__main__":
    main()
