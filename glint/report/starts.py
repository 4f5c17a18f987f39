"""Where RL starts in each arm: which arms share their starts, and which start above the band, so that little is left to gain."""

from dataclasses import dataclass
from typing import Any

from glint.config.tree import Config, resolve
from glint.report.results import Results
from glint.report.tables import Table
from glint.report.wording import count, whole


@dataclass(frozen=True)
class Above:
    """The seeds of one arm whose start lies above the band, taken together."""

    arm: str
    pass_rate: float
    """Mean share of dev tasks that these starts solve."""
    seeds: int
    of: int
    """Seeds that have a start."""
    updates: int
    """Groups of RL whose rewards differed, the only ones that teach, summed over these seeds."""
    groups: int


def sharing(config: Config, study: str) -> list[tuple[str, ...]]:
    """Return the arms in reporting order, those together that start RL from the same checkpoints."""
    together: dict[str, tuple[str, ...]] = {}
    for arm in config.studies[study].in_order():
        recipe = resolve(config, study, arm)
        parts: tuple[Any, ...] = (recipe.model, recipe.corpus, recipe.pretraining, recipe.selection)
        key = "\n".join(part.model_dump_json() for part in parts)
        together[key] = (*together.get(key, ()), arm)
    return list(together.values())


def selection(config: Config, results: Results, study: str) -> Table:
    """Return where RL started in each seed, and why: equal starts once, with the arms that share them."""
    table = results.of_study("selection", study)
    rows = [
        (
            ", ".join(arms),
            str(seed),
            whole(row["step"]),
            count(row["passed"], row["tasks"]),
            "yes" if row["in_band"] else "no",
            row["reason"],
        )
        for arms in sharing(config, study)
        for seed, row in table[table["arm"].isin(arms)].drop_duplicates("seed").set_index("seed").sort_index().iterrows()
    ]
    return Table("Start of RL", ("arm", "seed", "step", "dev tasks solved", "in the band", "reason"), rows, words=(5,))


def above(config: Config, results: Results, study: str) -> dict[str, Above]:
    """Return, by arm in reporting order, the starts above the band of the study, with the updates that RL then made."""
    chosen, trained = results.of_study("selection", study), results.of_study("rl", study)
    rows = chosen.merge(trained[trained["status"] == "complete"], on=["arm", "seed"])
    found = {}
    for arm in config.studies[study].in_order():
        own = rows[rows["arm"] == arm]
        high = own[own["pass_rate"] > resolve(config, study, arm).selection.high]
        if len(high):
            met = int(high["updates"].sum()), int(high["groups"].sum())
            found[arm] = Above(arm, high["pass_rate"].mean(), len(high), len(own), *met)
    return found
