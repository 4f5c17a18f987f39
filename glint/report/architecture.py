"""The architecture studies as words and tables of the report: which structure pays, and what each arm is, scores and costs."""

from functools import partial
from typing import Any

import pandas as pd

from glint.config.heldout import ALL
from glint.config.tree import Config, resolve
from glint.report.results import Results
from glint.report.tables import Table
from glint.report.wording import REAL, interval, made_of, mechanisms, nats, nats_interval, p_value, points, share, tera, whole

BASES = {
    (True, False): "equal steps",
    (False, True): "equal training FLOPs",
    (True, True): "equal steps and FLOPs",
    (False, False): "unequal steps and FLOPs",
}
"""What was equal between two arms, by whether their steps and whether their FLOPs were."""
EQUAL_FLOPS = 0.02
"""FLOPs that differ by no more than this share count as equal: steps are whole, and examples differ in length."""
VERDICTS = {"pays": "pays", "costs": "costs", "undecided": "cannot be decided"}
"""A verdict of the analysis, and in words."""
OUTCOMES = {"loss": "Held-out loss, nats a token", "dev": "Dev tasks solved"}
PER_CENT = 100
"""What the tables count in, where they hold dev tasks solved; the report writes shares."""
MEASURES = ["arm_mean", "against_mean", "estimate", "low", "high"]
"""Columns of a comparison that hold the outcome."""


def arms(results: Results) -> list[str]:
    """Return the arms of all architecture and recall studies in the order of the tables, each once."""
    tables = [results.read(name)["arm"] for name in ("architecture", "recall", "costs") if results.studies(name)]
    names: list[str] = pd.concat(tables).unique().tolist() if tables else []
    return names


def compared(results: Results, study: str, outcome: str = "loss") -> pd.DataFrame:
    """Return the planned comparisons of one study in one outcome, every source.

    `name` is that of the plan, with the steps where the plan has several; `pair` names the arms, `basis` what was equal.
    """
    table = results.of_study("architecture_contrasts", study)
    rows = table[table["outcome"] == outcome].copy()
    if outcome == "dev":
        rows[MEASURES] /= PER_CENT
    steps = rows["step"] == rows["against_step"]
    flops = (rows["arm_flops"] / rows["against_flops"] - 1).abs() <= EQUAL_FLOPS
    where = pd.Series([at(row) for row in rows.to_dict("records")], rows.index, dtype=str)
    several = where.groupby(rows["contrast"]).transform("nunique") > 1
    return rows.assign(
        name=rows["contrast"].where(~several, rows["contrast"] + ", " + where),
        pair=rows["arm"] + " against " + rows["against"],
        basis=[BASES[equal] for equal in zip(steps, flops, strict=True)],
    )


def overall(results: Results, study: str, outcome: str = "loss") -> pd.DataFrame:
    """Return the comparisons over all sources together."""
    rows = compared(results, study, outcome)
    return rows[rows["source"] == ALL]


def conclusion(results: Results, study: str) -> dict[str, list[tuple[str, str]]]:
    """Return, for each verdict on the loss, the comparisons that have it: their names, and in words what was found."""
    rows = overall(results, study).to_dict("records")
    return {verdict: [(row["name"], _finding(row)) for row in rows if row["verdict"] == verdict] for verdict in VERDICTS}


def _finding(row: Any) -> str:
    ends = nats_interval(row["low"], row["high"], signed=True)
    return (
        f"{row['pair']}, at {row['basis']} ({at(row)}), {nats(row['estimate'], signed=True)} nats a token"
        f"{' ' if ends.startswith('[') else ', '}{ends}, Holm’s p {row['p_holm']:.2g}, {seeds(row['n_seeds'])}"
    )


def at(row: Any) -> str:
    """Return the steps at which two arms are compared: one number if they are equal."""
    ours, theirs = whole(row["step"]), whole(row["against_step"])
    return f"step {ours}" if ours == theirs else f"step {ours} against step {theirs}"


def seeds(number: float) -> str:
    """Return a number of seeds in words."""
    return f"{whole(number)} seed{'' if number == 1 else 's'}"


def totals(results: Results, study: str, confidence: float) -> dict[str, Any]:
    """Return the counts behind the sentences of the section."""
    table, rows = results.of_study("architecture", study), overall(results, study)
    return {
        "comparisons": len(rows),
        "by_chance": len(rows) * (1 - confidence),
        "decided": int((rows["verdict"] != "undecided").sum()),
        "significant": int((rows["p_holm"] < 1 - confidence).sum()),
        "unreachable": bool(rows["p_floor"].min() * len(rows) >= 1 - confidence),
        "floor": rows["p_floor"].min(),
        "fewest": rows["n_seeds"].min(),
        "most": rows["n_seeds"].max(),
        "sources": [source for source in table["source"].dropna().unique() if source != ALL],
        "dev": overall(results, study, "dev")["verdict"].value_counts().to_dict(),
    }


def rewarded(config: Config, results: Results, study: str) -> list[str]:
    """Return the arms of the front rl study that are, by name and pretraining, arms of this study: the same model, taught by RL."""
    names = set(results.of_study("architecture_arms", study)["arm"])
    return [arm for arm in results.arms if arm in names and _pretraining(config, results.study, arm) == _pretraining(config, study, arm)]


def _pretraining(config: Config, study: str, arm: str) -> tuple[Any, ...]:
    """Return what decides how the model of an arm is pretrained."""
    recipe = resolve(config, study, arm)
    return recipe.model, recipe.corpus, recipe.pretraining


def real(config: Config, results: Results, study: str) -> list[str]:
    """Return the arms that have all the real mechanisms together."""
    names = results.of_study("architecture_arms", study)["arm"]
    return [arm for arm in names if made_of(resolve(config, study, arm).model, REAL)]


def outcomes(config: Config, results: Results, study: str, metric: str, taught: list[str]) -> Table:
    """Return what each arm is, its sizes, loss and dev pass rate at the end, and the gain by RL of the arms that are `taught` so."""
    table = results.of_study("architecture_arms", study)
    gains = {arm: results.estimate("targets", metric, "gain", arm=arm) for arm in taught}
    table["final_dev"] /= PER_CENT
    models = {arm: resolve(config, study, arm).model for arm in table["arm"]}
    base = resolve(config, study, config.studies[study].base).model
    rows = [
        (row["arm"], mechanisms(models[row["arm"]], base), *_arm(row), *([_gain(gains.get(row["arm"]))] if gains else []))
        for row in table.to_dict("records")
    ]
    header = (
        "arm",
        "what it is",
        "what it changes",
        "seeds",
        "parameters",
        "active for a token",
        "held-out loss, nats a token",
        "dev tasks solved",
    )
    return Table("Arms: sizes and outcomes", (*header, *(["gain by RL"] if gains else [])), rows, words=(1, 2))


def _arm(row: Any) -> tuple[str, ...]:
    return (
        "nothing: the base recipe" if pd.isna(row["changed"]) else row["changed"].replace(";", ", "),
        whole(row["seeds"]),
        whole(row["parameters"]) + ("" if row["within_1_percent"] else " (not equal)"),
        whole(row["active"]),
        nats(row["final_loss"]),
        share(row["final_dev"]),
    )


def _gain(row: pd.Series | None) -> str:
    return "" if row is None else f"{points(row['estimate'])} {interval(row['low'], row['high'], signed=True)}"


def costs(results: Results, study: str, steps: int) -> Table:
    """Return what each arm costs: `steps` of training, speed and memory, and the decode cache at the longest context measured."""
    scored, speeds, measured = (results.of_study(name, study) for name in ("architecture", "costs_speed", "costs"))
    flops = scored[scored["step"] == steps].groupby("arm")["flops"].mean()
    speed = speeds.pivot(index="arm", columns="what", values="tokens_per_second").to_dict("index")
    longest = measured[measured["context"] == measured["context"].max()].set_index("arm").to_dict("index")
    rows = [
        (arm, tera(flops[arm]), f"{memory:,.0f}", *_speed(speed.get(arm)), *_cache(longest.get(arm)))
        for arm, memory in results.of_study("architecture_arms", study)[["arm", "train_peak_mib"]].itertuples(index=False)
    ]
    context = "" if measured.empty else f" at {whole(measured['context'].max())} tokens"
    header = (
        "arm",
        "training FLOPs, 10¹²",
        "peak memory in training, MiB",
        "training, tokens a CPU second",
        "decoding, tokens a CPU second",
    )
    return Table("Arms: what they cost", (*header, f"decode cache{context}, KiB", "growth of the cache, bytes a token"), rows)


def _speed(row: Any) -> tuple[str, str]:
    return ("", "") if row is None else (f"{row['pretrain_step']:,.0f}", f"{row['decode']:,.0f}")


def _cache(row: Any) -> tuple[str, str]:
    return ("", "") if row is None else (f"{row['cache_bytes'] / 1024:,.0f}", f"{row['cache_bytes_per_token']:,.0f}")


def comparisons(results: Results, study: str, outcome: str) -> Table:
    """Return every comparison in one outcome over all sources together."""
    say, signed, both = (nats, partial(nats, signed=True), nats_interval) if outcome == "loss" else (share, points, interval)
    rows = [
        (
            f"{row['name']}: {row['pair']}\n{row['basis']}, {at(row)}",
            say(row["arm_mean"]),
            say(row["against_mean"]),
            signed(row["estimate"]),
            both(row["low"], row["high"], signed=True),
            f"{whole(row['seeds_won'])} of {whole(row['n_seeds'])}",
            p_value(row["p"], row["p_floor"]),
            f"{row['p_holm']:.3g}",
            row["verdict"],
        )
        for row in overall(results, study, outcome).to_dict("records")
    ]
    header = ("comparison", "first arm", "second arm", "difference", "interval", "seeds won", "sign-flip p", "Holm’s p", "verdict")
    return Table(f"{OUTCOMES[outcome]}: arms compared seed by seed", header, rows)


def by_source(results: Results, study: str) -> Table:
    """Return every comparison of losses in each source."""
    table = compared(results, study)
    rows = [
        (
            f"{row['name']}: {row['pair']}",
            row["source"],
            nats(row["estimate"], signed=True),
            nats_interval(row["low"], row["high"], signed=True),
            row["verdict"],
        )
        for row in table[table["source"] != ALL].to_dict("records")
    ]
    header = ("comparison", "source", "difference in nats a token", "interval", "verdict")
    return Table("Held-out loss of each source, arms compared", header, rows, words=(1,))
