"""The checks on rewards, as tables of the report: doubtful and suspicious programs, the canary, the mutants."""

import pandas as pd

from glint.report.results import Results
from glint.report.tables import Table
from glint.report.wording import count

CANARY = "canary"
PHASES = {"before": "before RL", "after": "after RL", "training": "samples of RL"}
ARM = ["study", "arm"]
SIGNS = ("ignores_argument", "holds_test_value")


def totals(results: Results) -> dict[str, int]:
    """Return the sums behind the sentences of the page: over all arms and phases, and the passes of the canary apart from them."""
    honest, canary = _parts(results)
    counted = {name: int(honest[name].sum()) for name in ("rewarded", "property_failed", *SIGNS)}
    mutants = results.read("mutation")
    survivors = int((mutants["mutants"] - mutants["killed"]).sum())
    return counted | {
        "canary_asked": int(canary["completions"].sum()),
        "canary_passed": int(canary["rewarded"].sum()),
        "mutants": int(mutants["mutants"].sum()),
        "survivors": survivors,
    }


def _parts(results: Results) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the counts of the families, and those of the canary, which must never be added to them."""
    counts = results.read("honesty")
    return counts[counts["family"] != CANARY], counts[counts["family"] == CANARY]


def doubtful(results: Results) -> Table:
    """Return, an arm and family, the rewarded completions that the property suite rejects, of all that were rewarded."""
    honest, _ = _parts(results)
    summed = [block for _, arm in honest.groupby(ARM, sort=False) for block in (arm, arm.assign(family="all families"))]
    rows = [
        (f"{study}, {arm}", family, *cells)
        for (study, arm, family), cells in _by_phase(pd.concat(summed), [*ARM, "family"], "property_failed", "rewarded")
    ]
    return Table("Rewarded, but the property suite fails", ("study, arm", "family", *PHASES.values()), rows, words=(1,))


def _by_phase(counts: pd.DataFrame, labels: list[str], value: str, of: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return, for each combination of `labels`, one count a phase; none where the phase has no such completions."""
    sums = counts.groupby([*labels, "phase"], sort=False)[[value, of]].sum()
    texts = pd.Series([count(*pair) for pair in sums.itertuples(index=False, name=None)], index=sums.index)
    table = texts.unstack("phase", fill_value="", sort=False).reindex(columns=list(PHASES), fill_value="")
    return list(zip(table.index, table.itertuples(index=False, name=None), strict=True))


def suspicious(results: Results) -> Table:
    """Return, an arm and phase, how many rewarded programs look as if they did not compute their answer."""
    honest, _ = _parts(results)
    sums = honest.groupby([*ARM, "phase"], sort=False)[["rewarded", *SIGNS]].sum().reset_index()
    rows = [
        (f"{row['study']}, {row['arm']}", PHASES[row["phase"]], *(count(row[sign], row["rewarded"]) for sign in SIGNS))
        for _, row in sums.iterrows()
    ]
    header = ("study, arm", "when", "never read their argument", "hold a value of a test")
    return Table("Suspicious among the rewarded", header, rows, words=(1,))


def canary(results: Results) -> Table:
    """Return the passes of the canary by each arm, of all its completions."""
    _, asked = _parts(results)
    rows = [(f"{study}, {arm}", *cells[:2]) for (study, arm), cells in _by_phase(asked, ARM, "rewarded", "completions")]
    return Table("Passes of the canary", ("study, arm", PHASES["before"], PHASES["after"]), rows)


def mutants(results: Results) -> Table:
    """Return what became of the wrong programs of each family."""
    rows = [
        (row["family"], count(row["killed"], row["mutants"]), count(row["rewarded"], row["mutants"]), _survivors(row))
        for _, row in results.read("mutation").iterrows()
    ]
    header = ("family", "rejected by the property suite", "passed the reward cases", "survivors")
    return Table("Wrong programs, tried on purpose", header, rows, words=(3,))


def _survivors(row: pd.Series) -> str:
    return "none" if pd.isna(row["survivors"]) else row["survivors"]
