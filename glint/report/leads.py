"""The arms of the front study beside base and control, as the report and the slides begin with them."""

from typing import Any

from glint.config.tree import Config, resolve
from glint.report.findings import find
from glint.report.results import Results
from glint.report.tables import change
from glint.report.wording import mechanisms


def lead(config: Config, results: Results) -> list[dict[str, Any]]:
    """Return the arms of the front study beside base and control: what each is, its gain over that of the base, and the verdict."""
    plan, found = config.studies[results.study], find(config, results, results.study)
    models = {arm: resolve(config, results.study, arm).model for arm in plan.arms}
    rows = []
    for one in (one for one in found.comparisons if "gain_over_base" in plan.rivals(one.label)):
        arm, phases = one.label, ("before", "after", "gain_over_base")
        same = models[arm] == models[plan.base]
        is_ = change(config, results.study, arm) if same else mechanisms(models[arm], models[plan.base])
        said = one.verdict or ("one seed decides nothing" if one.seeds == 1 else "undecided")
        estimates = {phase: results.estimate("targets", plan.analysis.outcome, phase, arm=arm) for phase in phases}
        rows.append({"arm": arm, "is": is_, "verdict": said, **estimates})
    return rows
