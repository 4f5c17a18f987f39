"""Arms of an rl study against its base arm, seed by seed: do they solve other tasks after RL? McNemar's exact test, corrected by Holm."""

from collections.abc import Iterator
from typing import Any

from glint.analysis.estimates import Scope
from glint.analysis.outcomes import ArmOutcomes
from glint.statistics.significance import discordant_needed, holm, mcnemar

METRIC = "greedy_pass1"


def comparison_rows(base: str, outcomes: dict[str, ArmOutcomes], targets: Scope, confidence: float) -> Iterator[dict[str, Any]]:
    """Yield, a seed, stop rule and arm, the target tasks that it and the arm `base` solve greedily; `outcomes` holds all of them.

    Holm's family of tests is the arms of one seed, as planned: an arm that lacks the seed has no row, and counts as a test that found
    nothing. A seed that the base lacks has no rows.
    """
    ours, tests = outcomes[base], len(outcomes) - 1
    for stop in ours.after:
        for seed in ours.seeds:
            rows: list[dict[str, Any]] = [
                {"seed": seed, "stop": stop, "arm": arm, "against": base} | _compare(ours, found, seed, stop, targets)
                for arm, found in outcomes.items()
                if arm != base and seed in found.seeds
            ]
            p_values = [row["p"] for row in rows] + [1.0] * (tests - len(rows))
            for row, p_holm in zip(rows, holm(p_values) if rows else (), strict=False):
                yield row | {"p_holm": float(p_holm), "needed": discordant_needed(1 - confidence, tests)}


def _compare(base: ArmOutcomes, arm: ArmOutcomes, seed: int, stop: str, targets: Scope) -> dict[str, Any]:
    theirs_T, ours_T = (one.values("after", stop, METRIC)[one.seeds.index(seed), targets.mask] for one in (base, arm))
    test = mcnemar(theirs_T, ours_T)
    counts = {"solved": int(ours_T.sum()), "against_solved": int(theirs_T.sum()), "of": len(ours_T)}
    return counts | {"gains": test.gains, "losses": test.losses, "p": test.p}
