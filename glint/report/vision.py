"""The vision studies as tables of the report: planned comparisons, budgets, seeds."""

from collections.abc import Hashable
from typing import Any

import pandas as pd

from glint.report.results import Results
from glint.report.tables import Table
from glint.report.wording import count, interval, metric_name, nats, nats_interval, p_value, points, seconds, share, whole
from glint.statistics.intervals import IMAGES_TOO, OVER_SEEDS

KEY = ["study", "contrast", "step", "metric"]


def planned(results: Results, study: str) -> pd.DataFrame:
    """Return the planned comparisons of one study: the interval with images drawn too, and `seeds_low`, `seeds_high` over seeds alone."""
    table = results.read("vision_contrasts")
    wide, narrow = (table[(table["method"] == method) & (table["study"] == study)] for method in (IMAGES_TOO, OVER_SEEDS))
    ends = narrow[[*KEY, "low", "high"]].rename(columns={"low": "seeds_low", "high": "seeds_high"})
    both: pd.DataFrame = wide.merge(ends, on=KEY)
    return both


def verdict(row: pd.Series) -> str:
    """Return which arm is better at the equal budget, by the interval that draws seeds and images."""
    if row["low"] > 0:
        return f"{row['arm']} is better"
    return f"{row['against']} is better" if row["high"] < 0 else f"{row['arm']} and {row['against']} cannot be told apart"


def verdicts(results: Results, study: str) -> list[str]:
    """Return a sentence for each planned comparison of accuracies: which arm is better, and by how much."""
    rows = planned(results, study)
    return [
        f"After {whole(row['step'])} updates on {whole(row['images'])} images, {verdict(row)}: {row['arm']} {share(row['arm_mean'])}, "
        f"{row['against']} {share(row['against_mean'])}, difference {points(row['estimate'])} "
        f"{interval(row['low'], row['high'], signed=True)}"
        for _, row in rows[rows["metric"] == "accuracy"].iterrows()
    ]


def comparisons(results: Results, study: str) -> Table:
    """Return the planned comparisons of one study."""
    header = (
        "comparison",
        "outcome",
        "first arm",
        "second arm",
        "difference",
        "interval, seeds and images",
        "interval, paired seeds",
        "seeds won",
    )
    rows = [_comparison(row) for _, row in planned(results, study).iterrows()]
    return Table("Arms at an equal budget, on held-out images", (*header, "sign-flip p"), rows, words=(1,))


def _comparison(row: pd.Series) -> tuple[str, ...]:
    shares = row["metric"] == "accuracy"
    say, both = (share, interval) if shares else (nats, nats_interval)
    return (
        f"{row['arm']} less {row['against']}, step {whole(row['step'])}",
        metric_name(row["metric"]),
        say(row["arm_mean"]),
        say(row["against_mean"]),
        points(row["estimate"]) if shares else nats(row["estimate"], signed=True),
        both(row["low"], row["high"], signed=True),
        both(row["seeds_low"], row["seeds_high"], signed=True),
        f"{whole(row['seeds_won'])} of {whole(row['n_seeds'])}",
        p_value(row["p"], row["p_floor"]),
    )


def budgets(results: Results, study: str) -> Table:
    """Return what each arm was given: images, updates and parameters, and the time that it took."""
    scores, constants, timings = (results.of_study(name, study) for name in ("vision", "constants", "timings"))
    last = scores.dropna(subset=["step"]).groupby("arm", sort=False)[["step", "images"]].last()
    counts = constants[constants["name"] == "parameters_total"].groupby("arm")["value"].first().to_dict()
    times = timings[timings["stage"] == "vision"].groupby("arm")["seconds"].median().to_dict()
    rows = [(arm, whole(step), whole(images), whole(counts[arm]), seconds(times[arm])) for arm, step, images in last.itertuples()]
    return Table("What each arm was given", ("arm", "updates", "images", "parameters", "training time, median of seeds"), rows)


def seed_by_seed(results: Results, study: str) -> Table:
    """Return every seed of every arm at the steps that are compared, the missing ones too."""
    table = results.of_study("vision", study)
    steps = [0, *sorted(planned(results, study)["step"].unique().tolist())]
    rows = [_seed(own.to_dict("records"), steps) for _, own in table.groupby(["arm", "seed"], sort=False)]
    header = [text for step in steps for text in (f"named, step {step}", f"loss in nats, step {step}")]
    return Table("Seed by seed, held-out images", ("arm, seed", *header), rows)


def _seed(own: list[dict[Hashable, Any]], steps: list[int]) -> tuple[str, ...]:
    name = f"{own[0]['arm']}, {own[0]['seed']}"
    if own[0]["status"] == "missing":
        return (name, "no result", *[""] * (2 * len(steps) - 1))
    at = {row["step"]: row for row in own}
    return (name, *(text for step in steps for text in (count(at[step]["right"], at[step]["of"]), nats(at[step]["loss"]))))
