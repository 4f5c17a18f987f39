"""Our tables against the published figures: one row a claim, with the verdict of the written rule."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import pandas as pd
from pydantic import Field, ValidationError, model_validator

from glint.config.base import Positive, Strict
from glint.config.errors import nearest, sentence
from glint.config.load import as_json, read_yaml
from glint.config.tree import Config
from glint.files import write_text
from glint.statistics import claims as rules
from glint.statistics.intervals import Interval, prediction_interval, prediction_of_mean, wilson
from glint.statistics.significance import discordant_needed

UNITS = {"measure": "nats", "no_significance": "p"}
"""Units of the rules that compare neither shares nor counts."""
ESTIMATE = ("estimate", "low", "high", "n_seeds")
TESTS = (("comparisons", "p"), ("comparisons", "p_holm"))
NEEDED = {"effect": (*ESTIMATE, "p", "p_floor"), "no_difference": ESTIMATE, "majority": ("n_seeds",), "no_significance": ("needed",)}
"""Columns that a rule reads beside those that the claim names."""
COLUMNS = ["id", "published", "ours", "low", "high", "n", "verdict", "rule", "unit", "of", "section", "says", "note"]


class Source(Strict):
    """Where our value stands: one cell, or one cell a seed, of a table of the analysis."""

    table: Literal[
        "estimates", "seeds", "rl", "curves", "constants", "comparisons", "contrasts", "expressions", "vision", "vision_contrasts"
    ]
    """Name of the CSV."""
    column: str
    """Column that holds the value."""
    per: str | None = None
    """Column to divide by, to make a share of a count."""
    error: str | None = None
    """Column of its standard error over the items of one seed (rule measure)."""
    where: dict[str, str | int] = Field(default_factory=dict)
    """Values that pick the rows."""


class Claim(Strict):
    """One published figure, and the rule that compares ours with it."""

    id: str
    """Name of the claim; its dots are a hierarchy."""
    section: str
    """Heading under which the report lists it."""
    says: str
    """The claim in a few words."""
    rule: Literal["constant", "design", "count", "measure", "effect", "no_difference", "no_significance", "majority"]
    """How the two are compared; docs/statistics.md has the rules."""
    published: float
    """The published figure, a count where `of` is given."""
    of: Positive | None = None
    """What the count is of; both are then compared as shares."""
    units: Positive | None = None
    """Independent tasks or groups behind the count (rule count); samples of one task are not independent."""
    study: str = "main"
    """Study that holds our value."""
    arm: str = "published"
    """Arm that holds our value."""
    source: Source
    """Where our value stands."""

    @model_validator(mode="after")
    def _spread_is_known(self) -> Self:
        if self.rule == "count" and self.units is None:
            raise ValueError(f"claim {self.id}: the rule count needs units, the independent tasks or groups behind the figure")
        if self.rule == "measure" and self.source.error is None:
            raise ValueError(f"claim {self.id}: the rule measure needs source.error, the column of the standard error")
        if self.rule == "measure" and (self.of or self.source.per):
            raise ValueError(f"claim {self.id}: the rule measure compares a mean as it is; leave out of and source.per")
        if self.rule == "no_significance" and (self.source.table, self.source.column) not in TESTS:
            raise ValueError(f"claim {self.id}: the rule no_significance reads p or p_holm of the table comparisons")
        return self

    @property
    def share(self) -> float:
        """The published figure in the unit of ours."""
        return self.published / self.of if self.of else self.published


class Claims(Strict):
    """The file of published claims."""

    source: str
    """Where the figures come from, in one sentence."""
    claims: tuple[Claim, ...] = Field(min_length=1)
    """The claims, in reporting order."""

    @model_validator(mode="after")
    def _ids_once(self) -> Self:
        ids = [claim.id for claim in self.claims]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"claims {', '.join(twice)} are given twice")
        return self


@dataclass(frozen=True)
class Comparison:
    """Our side of a claim and the verdict."""

    ours: float
    n: int
    verdict: rules.Verdict
    low: float = math.nan
    high: float = math.nan
    note: str = ""


def load_claims(path: Path) -> Claims:
    """Read `path`; raises ValueError with one sentence where it does not fit."""
    try:
        return Claims.model_validate_json(as_json(read_yaml(path, "claims"), str(path)))
    except ValidationError as error:
        raise ValueError(f"{path}: {sentence(error, Claims)}") from error


def compare(config: Config, claims: Path | None, tables: Path, out: Path) -> None:
    """Write `claims.csv` to `out`, a row a claim; without a file of claims, a header alone.

    Raises ValueError for a claim that has no result in the folder `tables`.
    """
    listed = load_claims(claims).claims if claims else ()
    found = {name: pd.read_csv(tables / f"{name}.csv") for name in {claim.source.table for claim in listed}}
    rows = [_row(claim, judge(claim, found[claim.source.table], config)) for claim in listed]
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"n": "Int64", "of": "Int64"})
    write_text(out, table.to_csv(index=False, float_format="%.9g", lineterminator="\n"))


def _row(claim: Claim, ours: Comparison) -> dict[str, object]:
    return {
        "id": claim.id,
        "published": claim.share,
        "ours": ours.ours,
        "low": ours.low,
        "high": ours.high,
        "n": ours.n,
        "verdict": ours.verdict,
        "rule": claim.rule,
        "unit": UNITS.get(claim.rule, "share" if claim.of else "count"),
        "of": claim.of,
        "section": claim.section,
        "says": claim.says,
        "note": ours.note,
    }


def judge(claim: Claim, table: pd.DataFrame, config: Config) -> Comparison:
    """Return our value and the verdict; raises ValueError where `table` has no row for the claim."""
    numbers = _columns(claim, table)
    rows = table[(table["study"] == claim.study) & (table["arm"] == claim.arm)]
    for column, value in claim.source.where.items():
        rows = rows[rows[column] == value]
    rows = rows.dropna(subset=[claim.source.column])
    if rows.empty:
        raise ValueError(f"claim {claim.id} has no result: {claim.source.table}.csv has no row for {claim.source.where or 'it'}")
    for name in numbers:
        if not pd.api.types.is_numeric_dtype(rows[name]):
            raise ValueError(f"claim {claim.id}: column {name} of {claim.source.table}.csv holds no numbers")
    plan = config.studies[claim.study].analysis
    match claim.rule:
        case "effect" | "no_difference":
            return _judge_estimate(claim, rows, plan.null_margin)
        case "no_significance":
            return _judge_test(rows, claim.source.column, 1 - plan.confidence)
        case "majority":
            return _judge_majority(claim, rows, plan.confidence)
        case "count":
            assert claim.units is not None
            return _judge_figure(prediction_interval(_values(claim, rows), claim.units, plan.confidence), claim, len(rows))
        case "measure":
            return _judge_figure(prediction_of_mean(_values(claim, rows), rows[claim.source.error], plan.confidence), claim, len(rows))
        case "constant" | "design":
            return _judge_value(claim, _values(claim, rows))


def _columns(claim: Claim, table: pd.DataFrame) -> list[str]:
    """Return the columns whose numbers `claim` compares; raises ValueError where `table` lacks one, or one that picks the rows."""
    source = claim.source
    numbers = [source.column, *(name for name in (source.per, source.error) if name), *NEEDED.get(claim.rule, ())]
    for name in [*numbers, *source.where]:
        if name not in table.columns:
            raise ValueError(f"claim {claim.id} needs column {name} of {source.table}.csv, which has none{nearest(name, table.columns)}")
    return numbers


def _values(claim: Claim, rows: pd.DataFrame) -> pd.Series:
    """Return our value of each seed."""
    values: pd.Series = rows[claim.source.column]
    return values / rows[claim.source.per] if claim.source.per else values


def _only(claim: Claim, rows: pd.DataFrame) -> pd.Series:
    if len(rows) != 1:
        raise ValueError(f"claim {claim.id} must name one row of {claim.source.table}.csv, not {len(rows)}")
    row: pd.Series = rows.iloc[0]
    return row


def _judge_estimate(claim: Claim, rows: pd.DataFrame, margin: float) -> Comparison:
    row = _only(claim, rows)
    if claim.rule == "no_difference":
        verdict, note = rules.judge_null(row["low"], row["high"], margin), f"margin {margin:g}"
    else:
        verdict = rules.judge_effect(claim.share, row["low"], row["high"])
        small = verdict == "replicated" and rules.misses_half(claim.share, row["low"], row["high"])
        note = f"p {row['p']:.3g}, smallest possible {row['p_floor']:.3g}" + ("; less than half the published size" if small else "")
    return Comparison(row["estimate"], int(row["n_seeds"]), verdict, row["low"], row["high"], note)


def _judge_test(rows: pd.DataFrame, column: str, alpha: float) -> Comparison:
    """Compare the smallest p of our seeds with what so few tasks could have shown at all."""
    p_values = rows[column]
    needed = rows["needed"].max() if column == "p_holm" else discordant_needed(alpha, 1)
    power = f"significant only from {needed:.0f} tasks on that one arm alone solves"
    return Comparison(p_values.min(), len(rows), rules.judge_no_significance(p_values.tolist(), alpha), note=power)


def _judge_majority(claim: Claim, rows: pd.DataFrame, confidence: float) -> Comparison:
    """Compare the share of seeds in which one arm beats the other, as an effect that is measured from one half."""
    row = _only(claim, rows)
    interval = wilson(int(row[claim.source.column]), int(row["n_seeds"]), confidence)
    verdict = rules.judge_effect(claim.share - 0.5, interval.low - 0.5, interval.high - 0.5)
    return Comparison(interval.estimate, int(row["n_seeds"]), verdict, interval.low, interval.high)


def _judge_figure(interval: Interval, claim: Claim, seeds: int) -> Comparison:
    """Compare a figure of a single run with our prediction for one more seed."""
    verdict = rules.judge_count(claim.share, interval.low, interval.high)
    note = "one seed shows no spread between seeds" if seeds == 1 else ""
    return Comparison(interval.estimate, seeds, verdict, interval.low, interval.high, note)


def _judge_value(claim: Claim, values: pd.Series) -> Comparison:
    """Compare the seed that lies farthest from the published value: all must agree."""
    ours = float(values.iloc[(values - claim.share).abs().argmax()])
    rule = rules.judge_constant if claim.rule == "constant" else rules.judge_design
    return Comparison(ours, len(values), rule(claim.share, ours))
