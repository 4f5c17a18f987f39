"""What single seeds scored: one value a study, arm, seed and quantity, read from the tables of a report, whatever the kind of study.

Shares lie in [0, 1], losses and log-probabilities are in nats.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd


class Quantity(NamedTuple):
    """What names a value beside its seed, empty where a kind of study has no such thing."""

    study: str
    arm: str
    split: str
    stop: str
    scope: str
    """Families of an rl study, split of a pretraining study, source of an architecture study; else `all`."""
    metric: str
    phase: str
    step: int
    """0 in rl studies, which report their last checkpoint alone."""


REPORTS = Path("reports")
QUANTITY = list(Quantity._fields)
NATS = ("loss", "log_prob")
"""Metrics that are no shares."""
PRIMARY = {
    "seeds": {"metric": "greedy_pass1", "scope": "targets"},
    "expressions": {"metric": "byte_accuracy", "scope": "held_out"},
    "vision": {"metric": "accuracy", "scope": "all"},
    "recall": {"metric": "recalled", "scope": "all"},
    "architecture": {"metric": "loss", "scope": "all"},
}
"""The tables that hold values of seeds, and the outcome of their studies that comes first."""
CONTRASTS = {
    "expressions": "contrasts",
    "vision": "vision_contrasts",
    "recall": "recall_contrasts",
    "architecture": "architecture_contrasts",
}
"""Where the planned comparisons of each such table stand."""


NAMES = ("study", "arm", "against", "contrast")
"""Columns of names, which are text even where pandas would read a number (arm 8) or nothing (arm NA)."""


def read_table(path: Path) -> pd.DataFrame:
    """Return a CSV file of an analysis."""
    others = [name for name in pd.read_csv(path, nrows=0).columns if name not in NAMES]
    return pd.read_csv(path, dtype=dict.fromkeys(NAMES, str), keep_default_na=False, na_values={name: ["", "nan"] for name in others})


def read(folder: Path, name: str) -> pd.DataFrame:
    """Return one table of a report, empty where the report has none: it is older than that kind of study."""
    path = folder / f"{name}.csv"
    return read_table(path) if path.exists() else pd.DataFrame(columns=["study"])


def find_tables(given: str) -> Path:
    """Return the folder `given`, or that of the run of this name; raises ValueError where there is neither."""
    folder = next((one for one in (Path(given), REPORTS / given, REPORTS / "reference" / given) if one.is_dir()), None)
    if folder is None:
        raise ValueError(f"{given} is neither a folder nor a run in {REPORTS}/; there are: {', '.join(known_runs()) or 'none'}")
    return folder


def known_runs() -> list[str]:
    """Return the names of the runs that have tables, those of the reference last."""
    found = [path for pattern in ("*", "reference/*") for path in sorted(REPORTS.glob(f"{pattern}/seeds.csv"))]
    return [path.parent.relative_to(REPORTS).as_posix() for path in found]


def seed_values(folder: Path) -> pd.DataFrame:
    """Return the columns `table`, `QUANTITY`, `seed` and `value`, a row a value, in the order of the tables; missing seeds are left out.

    Raises ValueError where the folder holds no table of seeds.
    """
    if not (folder / "seeds.csv").exists():
        raise ValueError(f"{folder} holds no tables of a run (seeds.csv is missing); `make quick` makes reports/quick")
    found = [shape(rows).assign(table=name) for name, shape in _SHAPES.items() if len(rows := _complete(folder, name))]
    columns = ["table", *QUANTITY, "seed", "value"]
    if not found:
        return pd.DataFrame(columns=columns)
    values = pd.concat(found, ignore_index=True).reindex(columns=columns)
    values = values.fillna({"split": "", "stop": "", "phase": "", "step": 0})
    return values.dropna(subset=["value"]).astype({"step": int, "seed": int})


def points(metric: str) -> bool:
    """Return whether a metric is a share, whose differences are told in percentage points."""
    return metric not in NATS


def _complete(folder: Path, name: str) -> pd.DataFrame:
    table = read(folder, name)
    return table if table.empty else table[table["status"] == "complete"]


def _rl(table: pd.DataFrame) -> pd.DataFrame:
    """Return the shares before and after RL, and the gain."""
    before, after = table["before"] / table["of"], table["after"] / table["of"]
    phases = {"before": before, "after": after, "gain": after - before}
    return pd.concat([table.assign(phase=phase, value=value) for phase, value in phases.items()])


def _expressions(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns="split").assign(scope=table["split"])


def _vision(table: pd.DataFrame) -> pd.DataFrame:
    shares = table.assign(metric="accuracy", value=table["right"] / table["of"])
    return pd.concat([shares, table.assign(metric="loss", value=table["loss"])]).assign(scope="all")


def _recall(table: pd.DataFrame) -> pd.DataFrame:
    """Return the share of names recalled over all distances."""
    sums = table.groupby(["study", "arm", "seed", "step"], sort=False, as_index=False)[["right", "of"]].sum()
    return sums.assign(metric="recalled", scope="all", value=sums["right"] / sums["of"])


def _architecture(table: pd.DataFrame) -> pd.DataFrame:
    """Return the held-out losses by source, and the share of dev tasks solved."""
    table = table.assign(scope=table["source"])
    return pd.concat([table.assign(metric="loss", value=table["loss"]), table.assign(metric="dev", value=table["dev"] / 100)])


_SHAPES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "seeds": _rl,
    "expressions": _expressions,
    "vision": _vision,
    "recall": _recall,
    "architecture": _architecture,
}
