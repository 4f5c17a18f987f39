"""The tables of the report: result rows in, headings and worded cells out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from glint.config.tree import Config, changes, resolve
from glint.report.results import Results
from glint.report.wording import MINUS, count, interval, metric_name, nats, nats_interval, p_value, points, seconds, share, whole
from glint.statistics.claims import WIDE, few_values_could_miss
from glint.statistics.intervals import FAMILIES_TOO

SPLITS = {
    "pretrain": "examples of pretraining",
    "rl": "prompts of RL",
    "dev": "curves, and the choice of checkpoints",
    "confirm": "results: nothing is chosen on it",
    "final": "kept back for a last look",
}
SUMS = {"targets": "target families", "others": "other families", "all": "all families"}


@dataclass(frozen=True)
class Table:
    """A caption, the headings, and rows of text whose first cell heads the row.

    `words` are the columns that hold prose; `parts` has the heading of each group of rows, by the place of its first row.
    """

    caption: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: tuple[int, ...] = ()
    parts: Mapping[int, str] = field(default_factory=dict)


def claims(results: Results) -> Table:
    """Return the claims in the order of their sections, published beside ours."""
    header = ("claim", "published", "ours", "interval", "seeds", "verdict", "note")
    rows: list[tuple[str, ...]] = []
    parts: dict[int, str] = {}
    for section, own in results.claims.groupby("section", sort=False):
        parts[len(rows)] = str(section)
        rows += [_claim(row) for _, row in own.iterrows()]
    return Table("Published figures and ours", header, rows, words=(5, 6), parts=parts)


def _claim(row: pd.Series) -> tuple[str, ...]:
    difference = row["rule"] in ("effect", "no_difference")
    say = {"p": _p, "nats": nats, "count": whole}.get(row["unit"], points if difference else share)
    published = say(row["published"])
    if not pd.isna(row["of"]) and not difference:
        published = f"{published} ({count(round(row['published'] * row['of']), row['of'])})"
    ends = "" if row["rule"] in ("constant", "design", "no_significance") else interval(row["low"], row["high"], signed=difference)
    ends = nats_interval(row["low"], row["high"]) if row["unit"] == "nats" else ends
    note = "" if pd.isna(row["note"]) else row["note"]
    return (f"{row['says']}\n{row['id']}", published, say(row["ours"]), ends, str(row["n"]), row["verdict"], note)


def single_runs(results: Results) -> dict[str, float]:
    """Return how many published figures of a single run are replicated, and how many of these lie in intervals of `width` or more."""
    rows = results.claims[(results.claims["rule"] == "count") & (results.claims["verdict"] == "replicated")]
    wide = sum(few_values_could_miss(low, high) for low, high in zip(rows["low"], rows["high"], strict=True))
    return {"replicated": len(rows), "wide": wide, "width": WIDE}


def _p(value: float) -> str:
    return f"p {value:.3g}"


def splits(config: Config, study: str, arm: str) -> Table:
    """Return the splits of the data: what each is for, how large it is, which seed draws it."""
    corpus, reported = resolve(config, study, arm).corpus, config.studies[study].split
    sizes = {split: f"{whole(getattr(corpus, f'{split}_tasks_per_family'))} a family" for split in SPLITS if split != "pretrain"}
    sizes = {"pretrain": f"{whole(corpus.pretrain_examples)} in all"} | sizes
    rows = [
        (split, SPLITS[split] + (" (this report)" if split == reported else ""), size, _drawn(split, corpus.evaluation_seed))
        for split, size in sizes.items()
    ]
    return Table("Splits of the data", ("split", "what it is for", "tasks", "drawn from"), rows, words=(1,))


def _drawn(split: str, evaluation_seed: int) -> str:
    return "the training seed" if split in ("pretrain", "rl") else f"seed {evaluation_seed}, for all alike"


def arms(results: Results, config: Config, study: str) -> Table:
    """Return the primary outcome of each arm of one study."""
    plan = config.studies[study]
    metric = plan.analysis.outcome
    rows = [_arm(results, config, study, arm, metric) for arm in plan.in_order()]
    over = (f"gain over arm {plan.base}", *(["gain over the control"] if plan.analysis.control is not None else []))
    header = ("arm", "change", "before RL", "after RL", "gain", "interval of the gain", *over, "sign-flip p over seeds")
    return Table(f"{metric_name(metric).capitalize()}, {SUMS['targets']}", header, rows, words=(1,))


def _arm(results: Results, config: Config, study: str, arm: str, metric: str) -> tuple[str, ...]:
    plan = config.studies[study]
    before, after, gain = (results.estimate("targets", metric, phase, study=study, arm=arm) for phase in ("before", "after", "gain"))
    over = dict.fromkeys(("gain_over_base", *(["gain_over_control"] if plan.analysis.control is not None else [])), "")
    for phase in plan.rivals(arm):
        against = results.estimate("targets", metric, phase, study=study, arm=arm)
        over[phase] = f"{points(against['estimate'])} {interval(against['low'], against['high'], signed=True)}"
    ends = interval(gain["low"], gain["high"], signed=True)
    p = p_value(gain["p"], gain["p_floor"])
    rates = (share(before["estimate"]), share(after["estimate"]), points(gain["estimate"]))
    return (arm, change(config, study, arm), *rates, ends, *over.values(), p)


def change(config: Config, study: str, arm: str) -> str:
    """Return what an arm changes in the base recipe, as dotted keys."""
    plan = config.studies[study]
    changed = changes(config.recipes[plan.recipe], resolve(config, study, arm))
    why = plan.arms[arm].several_changes
    words = ", ".join(f"{key}: {json.dumps(value)}" for key, value in changed.items())
    return (words or "the base recipe") + (f" (several changes: {why})" if why else "")


def outcomes(results: Results) -> Table:
    """Return every metric on the target families, with both kinds of interval."""
    wide = results.estimates[results.estimates["method"] == FAMILIES_TOO].set_index(["study", "arm", "stop", "scope", "metric", "phase"])
    rows = []
    for metric in [name for name in results.metrics if name != "rewarded_property_failed"]:
        before, after, gain = (results.estimate("targets", metric, phase) for phase in ("before", "after", "gain"))
        key = (results.study, results.arm, results.stop, "targets", metric, "gain")
        families = interval(*wide.loc[key, ["low", "high"]], signed=True) if key in wide.index else "one family"
        rows.append((metric_name(metric), _with_interval(before), _with_interval(after), *_gain(gain), families))
    header = ("outcome", "before RL", "after RL", "gain", "interval", "interval, families drawn too")
    return Table("Target families, arm " + results.arm, header, rows)


def _with_interval(row: pd.Series) -> str:
    return f"{share(row['estimate'])} {interval(row['low'], row['high'])}"


def _gain(row: pd.Series) -> tuple[str, str]:
    return points(row["estimate"]), interval(row["low"], row["high"], signed=True)


def families(results: Results) -> Table:
    """Return the sampled pass rate of each family before and after RL, and how many samples are no valid function."""
    rows = []
    for scope in [*results.families, *(name for name in SUMS if name in results.scopes)]:
        before, after, gain = (results.estimate(scope, "sampled_exact", phase) for phase in ("before", "after", "gain"))
        invalid = results.estimate(scope, "invalid_sampled", "after")
        rows.append((SUMS.get(scope, scope), _with_interval(before), _with_interval(after), *_gain(gain), share(invalid["estimate"])))
    header = ("family", "before RL", "after RL", "gain", "interval", "not valid after RL")
    return Table("Sampled answers that pass, arm " + results.arm, header, rows)


def seeds(results: Results) -> Table:
    """Return every seed of every arm, the missing ones too."""
    table = results.of_study("seeds")
    front = (table["scope"] == "targets") & (table["stop"] == results.stop)
    greedy = table[(front & (table["metric"] == "greedy_pass1")) | (table["status"] == "missing")]
    sampled = table[front & (table["metric"] == "sampled_exact")]
    others = [frame.set_index(["arm", "seed"]) for frame in (sampled, results.of_study("rl"), results.of_study("selection"))]
    rows = [_seed(row, *others) for _, row in greedy.sort_values(["arm", "seed"], kind="stable").iterrows()]
    header = ("arm, seed", "start step", "greedy passes", "tasks gained, lost", "McNemar p", "samples that pass", "updates")
    return Table("Target families, seed by seed", (*header, "training samples that pass"), rows)


def _seed(row: pd.Series, sampled: pd.DataFrame, training: pd.DataFrame, starts: pd.DataFrame) -> tuple[str, ...]:
    key: Any = (row["arm"], row["seed"])
    name = f"{row['arm']}, {row['seed']}"
    if row["status"] == "missing":
        return (name, "no result", *[""] * 6)
    other, trained = sampled.loc[key], training.loc[key]
    return (
        name,
        whole(starts.loc[key, "step"]),
        f"{count(row['before'], row['of'])} → {count(row['after'], row['of'])}",
        f"+{whole(row['gains'])} {MINUS}{whole(row['losses'])}",
        f"{row['p']:.3g}",
        f"{count(other['before'], other['of'])} → {count(other['after'], other['of'])}",
        count(trained["updates"], trained["groups"]),
        count(trained["exact"], trained["rollouts"]),
    )


def stops(results: Results) -> Table:
    """Return the outcomes on the target families under each stop rule."""
    rows = []
    for metric in results.headline:
        for stop in results.stops:
            before, after, gain = (results.estimate("targets", metric, phase, stop=stop) for phase in ("before", "after", "gain"))
            rows.append((f"{metric_name(metric)}, stop on {stop}", _with_interval(before), _with_interval(after), *_gain(gain)))
    header = ("outcome", "before RL", "after RL", "gain", "interval")
    return Table(f"Stop rules side by side, target families, arm {results.arm}", header, rows)


def timings(results: Results) -> Table:
    """Return the wall time of each stage."""
    times = results.read("timings").groupby(["stage", "device"], sort=False)["seconds"].agg(["count", "sum", "min", "max"]).reset_index()
    rows = [
        (f"{row['stage']}, {row['device']}", whole(row["count"]), seconds(row["sum"]), f"{seconds(row['min'])} to {seconds(row['max'])}")
        for _, row in times.iterrows()
    ]
    return Table("Time of the jobs", ("stage, device", "jobs", "time of all jobs", "time of one job"), rows)
