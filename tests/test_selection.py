"""The selection rule on hand-made pass rates."""

import pandas as pd
import pytest

from glint.config.selection import SelectionRecipe, SelectJob
from glint.selection import select


def dev(passed_by_step, tasks=10, **changes):
    rows = [
        {"checkpoint": f"step-{step:04d}", "split": "dev", "family": "even", "mode": "greedy", "stop": "parses", "verdict": verdict}
        for step, passed in passed_by_step.items()
        for verdict in ["passed"] * passed + ["failed"] * (tasks - passed)
    ]
    return pd.DataFrame(rows).assign(**changes)


def choose(completions, candidates=(60, 80, 100, 120), **recipe):
    return select(SelectJob(selection=SelectionRecipe(**recipe), candidates=candidates, seed=42), completions)


def test_the_first_candidate_in_the_band_wins_over_a_later_one():
    chosen = choose(dev({60: 1, 80: 3, 100: 5, 120: 9}))
    assert (chosen["step"], chosen["checkpoint"], chosen["in_band"]) == (80, "step-0080", True)
    assert (chosen["passed"], chosen["tasks"], chosen["pass_rate"]) == (3, 10, 0.3)
    assert chosen["rates"] == {"60": 0.1, "80": 0.3, "100": 0.5, "120": 0.9}


@pytest.mark.parametrize(("rate", "in_band"), [(2, True), (6, True), (1, False), (7, False)])
def test_both_ends_belong_to_the_band(rate, in_band):
    assert choose(dev({60: rate}), candidates=(60,))["in_band"] is in_band


def test_a_jump_over_the_band_takes_the_nearest_below():
    chosen = choose(dev({60: 0, 80: 1, 100: 8, 120: 10}))
    assert (chosen["step"], chosen["in_band"]) == (80, False)
    assert "nearest below has 0.100" in chosen["reason"]


def test_equal_rates_below_take_the_earlier():
    assert choose(dev({60: 1, 80: 1, 100: 8, 120: 10}))["step"] == 60


def test_all_above_takes_the_first_and_says_so():
    chosen = choose(dev({60: 7, 80: 9, 100: 8, 120: 10}))
    assert (chosen["step"], chosen["in_band"]) == (60, False)
    assert "every candidate lies above 0.6" in chosen["reason"]


def test_only_greedy_dev_rows_that_stop_on_parse_count():
    chosen = dev({60: 3, 80: 5}), [dev({60: 10, 80: 10}, **other) for other in ({"split": "confirm"}, {"mode": "sampled"}, {"stop": "eos"})]
    assert choose(pd.concat([chosen[0], *chosen[1]]), candidates=(60, 80))["rates"] == {"60": 0.3, "80": 0.5}


def test_only_the_families_of_the_recipe_count():
    rows = pd.concat([dev({60: 3}), dev({60: 10}, family="square")])
    assert choose(rows, candidates=(60,), families=("even",))["rates"] == {"60": 0.3}
    assert choose(rows, candidates=(60,))["rates"] == {"60": 0.65}


def test_a_checkpoint_that_is_no_candidate_is_never_chosen():
    assert choose(dev({60: 1, 70: 4, 80: 3}), candidates=(60, 80))["step"] == 80


def test_a_candidate_without_completions_is_named():
    with pytest.raises(ValueError, match=r"seed 42: .* step-0120"):
        choose(dev({60: 1, 80: 3, 100: 5}))
