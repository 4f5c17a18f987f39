"""The pretraining studies as tables of the report: planned comparisons, what blocks leave behind, what the models write."""

from dataclasses import dataclass
from typing import Self

import pandas as pd

from glint.report.results import Results
from glint.report.tables import Table
from glint.report.wording import interval, metric_name, p_value, points, share, whole
from glint.statistics.intervals import OVER_SEEDS, STRUCTURES_TOO

KEY = ["study", "contrast", "step", "split", "metric"]


def planned(results: Results, split: str = "held_out") -> pd.DataFrame:
    """Return the planned comparisons on one split: the interval over seeds, and `wide_low`, `wide_high` where structures are drawn too."""
    table = results.read("contrasts")
    narrow, wide = (table[table["method"] == method] for method in (OVER_SEEDS, STRUCTURES_TOO))
    ends = wide[[*KEY, "low", "high"]].rename(columns={"low": "wide_low", "high": "wide_high"})
    both = narrow.merge(ends, on=KEY)
    rows: pd.DataFrame = both[both["split"] == split]
    return rows


def comparisons(results: Results, study: str, split: str) -> Table:
    """Return the planned comparisons of one study on held-out or on trainable structures."""
    rows = planned(results, split)
    cells = [_comparison(row) for _, row in rows[rows["study"] == study].iterrows()]
    header = ("comparison", "outcome", "first arm", "second arm", "difference", "interval, paired seeds", "interval, structures drawn too")
    where = {"held_out": "Held-out structures", "trained": "Structures that may be trained on"}[split]
    return Table(f"{where}: arms compared seed by seed", (*header, "seeds won", "sign-flip p over seeds"), cells, words=(1,))


def _comparison(row: pd.Series) -> tuple[str, ...]:
    return (
        f"{row['arm']} less {row['against']}, step {row['step']}",
        metric_name(row["metric"]),
        share(row["arm_mean"]),
        share(row["against_mean"]),
        points(row["estimate"]),
        interval(row["low"], row["high"], signed=True),
        interval(row["wide_low"], row["wide_high"], signed=True),
        f"{whole(row['seeds_won'])} of {whole(row['n_seeds'])}",
        p_value(row["p"], row["p_floor"]),
    )


def forgotten(results: Results, study: str) -> Table:
    """Return how each group of structures fares from the end of its blocks to the end of the training."""
    table = results.read("forgetting")
    rows = [
        (
            f"{row['arm']}, blocks {row['first'] + 1} to {row['last'] + 1}",
            f"{share(row['after_block'])} (step {row['step']})",
            f"{share(row['at_end'])} (step {row['last_step']})",
            points(row["estimate"]),
            interval(row["low"], row["high"], signed=True),
            p_value(row["p"], row["p_floor"]),
        )
        for _, row in table[table["study"] == study].iterrows()
    ]
    header = ("arm, structures", "after their blocks", "at the end", "change", "interval, paired seeds", "sign-flip p over seeds")
    return Table("Bytes predicted of structures trained on block by block", header, rows)


def written(results: Results, study: str) -> Table:
    """Return what the models of the first seed wrote for the first held-out structures."""
    table = results.read("written")
    rows = [
        (f"{row['arm']}, {row['family']}", row["target"], str(row["completion"]).rstrip("\n"), row["verdict"])
        for _, row in table[table["study"] == study].iterrows()
    ]
    return Table("Written greedily, first seed, last step", ("arm, steps", "target", "written", "verdict when run"), rows, words=(1, 2, 3))


def baselines(results: Results, study: str) -> dict[str, float]:
    """Return the share of held-out bytes that each baseline predicts, by its name."""
    table = results.read("baselines")
    rows = table[(table["study"] == study) & (table["split"] == "held_out")]
    return dict(zip(rows["name"], rows["value"], strict=True))


@dataclass(frozen=True)
class Trajectories:
    """Bytes predicted over the steps, of the first arm that trains by blocks and of the arm that it is compared with."""

    table: pd.DataFrame
    arms: list[str]
    bigram: float
    """Share of held-out bytes that follow from the byte before."""
    change: pd.Series
    """Row of forgetting.csv for the first group."""

    @classmethod
    def of(cls, results: Results) -> Self | None:
        """Return those of the first study with an arm that trains by blocks; None where there is none."""
        changes = results.read("forgetting")
        if changes.empty:
            return None
        first = changes.iloc[0]
        table, compared = (frame[frame["study"] == first["study"]] for frame in (results.read("trajectories"), results.read("contrasts")))
        pairs = compared[(compared["arm"] == first["arm"]) | (compared["against"] == first["arm"])]
        arms = [first["arm"], *(arm for arm in pd.unique(pairs[["arm", "against"]].to_numpy().ravel()) if arm != first["arm"])]
        return cls(table, arms, baselines(results, first["study"])["after_the_byte_before"], first)

    def lines(self, arm: str) -> list[pd.Series]:
        """Return a line a group of trainable structures, in the order of the blocks; the index is the step."""
        rows = self.table[(self.table["arm"] == arm) & (self.table["split"] == "trained")]
        return [line.set_index("step")["estimate"] for _, line in rows.groupby("first")]

    def held_out(self, arm: str) -> pd.Series:
        """Return the line of the held-out structures."""
        rows = self.table[(self.table["arm"] == arm) & (self.table["split"] == "held_out")]
        line: pd.Series = rows.set_index("step")["estimate"]
        return line

    @property
    def highest(self) -> float:
        """The highest point of all lines."""
        return float(self.table.loc[self.table["arm"].isin(self.arms), "estimate"].max())

    @property
    def summary(self) -> str:
        """The first group in words."""
        row = self.change
        return (
            f"Arm {row['arm']}, first group of structures: {row['after_block']:.1%} of bytes at step {row['step']}, after its blocks, "
            f"{row['at_end']:.1%} at step {row['last_step']}"
        )
