"""What a study found, of whatever kind: its comparisons with intervals and verdicts, and one limit, for those who pass it on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from glint.config.study import Study
from glint.config.tree import Config
from glint.report import architecture, contrasts, recall, starts, vision
from glint.report.results import Results
from glint.report.wording import interval, metric_name, nats, nats_interval, points, setting, share, whole

Side = Literal["above", "below", "undecided"]
"""On which side of zero an interval lies; undecided: it holds zero, or one seed gives none."""
LIMITS = {
    "rl": "Tasks are one-line functions, alike within a family.",
    "pretraining": "A mini model; the intervals speak of more seeds on these structures.",
    "vision": "Digits are drawn by a program, and levels depend on how.",
    "architecture": "Small models, one recipe; intervals are not corrected for the number of comparisons.",
    "recall": "Texts are made by a program, and no arm was tuned by itself.",
}
"""One limit of each kind of study."""
SHARED_START = "All seeds share one pretraining."
ABOVE = "not comparable, an arm starts above the band"
"""What stands for a verdict on the gains of two arms where one of them had little left to gain."""
BEATS = "beats"
"""Verb of a verdict that either arm may be the subject of."""


@dataclass(frozen=True)
class Comparison:
    """One difference with its interval; without one, `low` and `high` are NaN."""

    label: str
    """What is compared: an arm, or two."""
    estimate: float
    low: float
    high: float
    side: Side
    seeds: int
    levels: str
    """The two levels behind the difference, in words."""
    verdict: str
    """In words, where the interval excludes zero, or why there is none; else empty."""


@dataclass(frozen=True)
class Finding:
    """The result of one study."""

    study: str
    plan: Study
    measured: str
    """What the comparisons count, and in which unit."""
    comparisons: tuple[Comparison, ...]
    """In the order of the plan; never empty."""
    context: str = ""
    """A sentence without which the comparisons would be read wrongly."""
    in_nats: bool = False
    primary: Comparison | None = None
    """The comparison that answers the question by itself, if there is one."""
    control_failed: bool = False
    """Whether the interval of the negative control's gain excludes zero, so that every verdict is in doubt."""

    @property
    def unit(self) -> str:
        """The unit of the differences."""
        return "nats a token" if self.in_nats else "percentage points"

    @property
    def level(self) -> str:
        """The confidence of the intervals, in words."""
        return setting(self.plan.analysis.confidence)

    @property
    def decided(self) -> list[Comparison]:
        """The comparisons whose interval excludes zero."""
        return [one for one in self.comparisons if one.side != "undecided"]

    @property
    def seeds(self) -> str:
        """The number of training seeds in words; a range where comparisons rest on different numbers."""
        counts = sorted({one.seeds for one in self.comparisons})
        return f"{' to '.join(map(whole, counts[:1] + counts[1:][-1:]))} training {'seed' if counts == [1] else 'seeds'}"

    @property
    def certainty(self) -> str:
        """The number of training seeds and the level of the intervals; with one seed, that there are none."""
        if all(one.seeds == 1 for one in self.comparisons):
            return f"{self.seeds}, no interval: one seed decides nothing"
        return f"{self.seeds}, {self.level} intervals"

    @property
    def limit(self) -> str:
        """One limit of the study."""
        return LIMITS[self.plan.kind] if self.plan.start_seed is None else f"{LIMITS[self.plan.kind]} {SHARED_START}"

    @property
    def outcome(self) -> str:
        """The verdict in a few words: that of the primary comparison, or how many of the comparisons have one, each for itself."""
        said = f"{len(self.decided)} of {len(self.comparisons)} comparisons decided, uncorrected for their number"
        if self.primary is not None:
            said = self.primary.verdict or "undecided"
        return f"{said}, in doubt: the control failed" if self.control_failed else said

    def difference(self, one: Comparison) -> str:
        """Return a difference in words, without its interval."""
        return f"{nats(one.estimate, signed=True)} nats" if self.in_nats else points(one.estimate)

    def ends(self, one: Comparison) -> str:
        """Return the interval of a difference in words; without one, that there is none."""
        return nats_interval(one.low, one.high, signed=True) if self.in_nats else interval(one.low, one.high, signed=True)


def find(config: Config, results: Results, study: str) -> Finding:
    """Return what `study` found."""
    found = FINDERS[config.studies[study].kind](config.studies[study], results, study)
    if found.plan.kind == "rl":
        found = _from_above(found, set(starts.above(config, results, study)))
    return replace(found, primary=found.comparisons[0]) if len(found.comparisons) == 1 else found


def _from_above(found: Finding, above: set[str]) -> Finding:
    """Return a finding on RL that leaves undecided what an arm gains over another where one of them began above the band."""
    if found.primary is not None:  # gains of single arms, set against none
        return found
    void = {one.label for one in found.comparisons if one.label in above or found.plan.base in above}
    told = (replace(one, side="undecided", verdict=ABOVE) if one.label in void else one for one in found.comparisons)
    return replace(found, comparisons=tuple(told))


def _side(low: float, high: float) -> Side:
    return "above" if low > 0 else "below" if high < 0 else "undecided"


def _rl(plan: Study, results: Results, study: str) -> Finding:
    """Compare the gains of the arms with that of the base arm; where there are none but it and the control, show what each gained."""
    outcome, control = metric_name(plan.analysis.outcome), plan.analysis.control
    failed = control is not None and _gain(plan, results, study, control, "gain", {}).side != "undecided"
    rivals = [arm for arm in plan.in_order() if "gain_over_base" in plan.rivals(arm)]
    if rivals:
        words = {"above": "gains more", "below": "gains less"}
        rows = tuple(_gain(plan, results, study, arm, "gain_over_base", words) for arm in rivals)
        base = _gain(plan, results, study, plan.base, "gain", words)
        context = f"Base arm {plan.base}: {base.levels}."
        return Finding(study, plan, f"gain by RL less that of {plan.base}: {outcome}", rows, context, control_failed=failed)
    words = {"above": "gains", "below": "loses"}
    rows = tuple(_gain(plan, results, study, arm, "gain", words) for arm in plan.in_order())
    context = "" if plan.analysis.control is None else f"{plan.analysis.control} is the negative control, which must gain nothing."
    return Finding(study, plan, f"gain by RL: {outcome}", rows, context, primary=rows[0], control_failed=failed)


def _gain(plan: Study, results: Results, study: str, arm: str, phase: str, words: dict[str, str]) -> Comparison:
    rows = {name: results.estimate("targets", plan.analysis.outcome, name, study=study, arm=arm) for name in ("before", "after", phase)}
    levels = f"{share(rows['before']['estimate'])} before RL, {share(rows['after']['estimate'])} after"
    side = _side(rows[phase]["low"], rows[phase]["high"])
    return _comparison(arm, rows[phase], side, levels, f"{arm} {words[side]}" if side in words else "")


def _comparison(label: str, row: Any, side: Side, levels: str, verdict: str) -> Comparison:
    return Comparison(label, row["estimate"], row["low"], row["high"], side, int(row["n_seeds"]), levels, verdict)


def _pairs(rows: Iterable[Any], judge: Callable[[Any], tuple[Side, str]], say: Callable[[float], str] = share) -> tuple[Comparison, ...]:
    """Return comparisons of two arms each; at which step is told where a pair stands several times.

    `judge` gives the side and the verb of the verdict, of which the arm that is better is the subject; `say` writes a level.
    """
    given = list(rows)
    pairs = [(row["arm"], row["against"]) for row in given]
    found = []
    for row, (arm, against) in zip(given, pairs, strict=True):
        where = f" ({_steps(row)})" if pairs.count((arm, against)) > 1 else ""
        side, verb = judge(row)
        one, other = (against, arm) if verb == BEATS and side == "below" else (arm, against)
        verdict = "" if side == "undecided" else f"{one} {verb} {other}{where}"
        levels = f"{arm} {say(row['arm_mean'])}, {against} {say(row['against_mean'])}"
        found.append(_comparison(f"{arm} vs {against}{where}", row, side, levels, verdict))
    return tuple(found)


def _steps(row: Any) -> str:
    ours, theirs = whole(row["step"]), whole(row.get("against_step", row["step"]))
    return f"{ours} steps" if ours == theirs else f"{ours} vs {theirs} steps"


def _by_interval(row: Any) -> tuple[Side, str]:
    return _side(row["low"], row["high"]), BEATS


def _by_both(row: Any) -> tuple[Side, str]:
    """Decide where the interval over seeds and the one that draws texts too agree, as the report does."""
    side = _side(row["low"], row["high"])
    return side if side == _side(row["texts_low"], row["texts_high"]) else "undecided", BEATS


def _by_verdict(row: Any) -> tuple[Side, str]:
    side = _side(row["low"], row["high"]) if row["verdict"] in ("pays", "costs") else "undecided"
    return side, f"{row['verdict']} against"


def _pretraining(plan: Study, results: Results, study: str) -> Finding:
    rows = contrasts.planned(results)
    rows = rows[(rows["study"] == study) & (rows["metric"] == "byte_accuracy")]
    compared = _pairs(rows.to_dict("records"), _by_interval)
    return Finding(study, plan, f"difference on held-out structures: {metric_name('byte_accuracy')}", compared)


def _vision(plan: Study, results: Results, study: str) -> Finding:
    rows = vision.planned(results, study)
    compared = _pairs(rows[rows["metric"] == "accuracy"].to_dict("records"), _by_interval)
    return Finding(study, plan, f"difference on held-out images: {metric_name('accuracy')}", compared)


def _recall(plan: Study, results: Results, study: str) -> Finding:
    """Show the interval over seeds, with few of them the wider one."""
    rows = recall.planned(results, study)
    rows = rows[rows["distance"] == recall.ALL].rename(columns={"low": "texts_low", "high": "texts_high"})
    rows = rows.rename(columns={"seeds_low": "low", "seeds_high": "high"})
    return Finding(study, plan, "difference over all distances: names recalled", _pairs(rows.to_dict("records"), _by_both))


def _architecture(plan: Study, results: Results, study: str) -> Finding:
    compared = _pairs(architecture.overall(results, study).to_dict("records"), _by_verdict, nats)
    context = "Less loss is better: the first arm pays where the interval lies below zero."
    return Finding(study, plan, "difference of the held-out loss", compared, context, in_nats=True)


FINDERS: dict[str, Callable[[Study, Results, str], Finding]] = {
    "rl": _rl,
    "pretraining": _pretraining,
    "vision": _vision,
    "architecture": _architecture,
    "recall": _recall,
}
