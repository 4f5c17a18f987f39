"""The choice of the checkpoint from which RL starts: a rule of the config that sees dev tasks only."""

from typing import Any

import pandas as pd

from glint.config.selection import SelectJob


def select(job: SelectJob, completions: pd.DataFrame) -> dict[str, Any]:
    """Return the first candidate whose greedy dev pass rate lies in the band, else the nearest below it, with the reason in words.

    `completions` are those of the seed's pretraining checkpoints on dev; the stop rule is `parses`, under which RL samples by default.
    The result holds `seed`, `step`, `checkpoint`, `pass_rate`, `passed`, `tasks`, `in_band`, `reason` and `rates` (of all candidates).
    Raises ValueError where a candidate was not evaluated.
    """
    outcomes = _greedy_dev(job, completions)
    rates = {step: float(passed.mean()) for step, passed in outcomes.items()}
    step, reason = _choose(rates, job.selection.low, job.selection.high)
    return {
        "seed": job.seed,
        "step": step,
        "checkpoint": _name(step),
        "pass_rate": rates[step],
        "passed": int(outcomes[step].sum()),
        "tasks": len(outcomes[step]),
        "in_band": job.selection.low <= rates[step] <= job.selection.high,
        "reason": reason,
        "rates": {str(candidate): rate for candidate, rate in rates.items()},
    }


def _name(step: int) -> str:
    return f"step-{step:04d}"


def _greedy_dev(job: SelectJob, completions: pd.DataFrame) -> dict[int, pd.Series]:
    """Return, a candidate, whether each of its dev tasks was solved."""
    rows = completions[(completions["split"] == "dev") & (completions["mode"] == "greedy") & (completions["stop"] == "parses")]
    if job.selection.families:
        rows = rows[rows["family"].isin(job.selection.families)]
    outcomes = {step: rows.loc[rows["checkpoint"] == _name(step), "verdict"] == "passed" for step in job.candidates}
    missing = [_name(step) for step, passed in outcomes.items() if passed.empty]
    if missing:
        raise ValueError(f"seed {job.seed}: no greedy dev completions of the candidates {', '.join(missing)}")
    return outcomes


def _choose(rates: dict[int, float], low: float, high: float) -> tuple[int, str]:
    """Return the chosen step and why, from rates in candidate order."""
    for step, rate in rates.items():
        if low <= rate <= high:
            return step, f"first candidate whose dev pass rate, {rate:.3f}, lies in [{low:g}, {high:g}]"
    below = {step: rate for step, rate in rates.items() if rate < low}
    if below:
        step = max(below, key=lambda candidate: below[candidate])
        return step, f"no candidate lies in [{low:g}, {high:g}]; the nearest below has {below[step]:.3f}"
    step = next(iter(rates))
    return step, f"every candidate lies above {high:g} and none below {low:g}; the first, with {rates[step]:.3f}, is taken"
