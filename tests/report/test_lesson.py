"""What the slides teach with: chosen by rules, and its arithmetic that of the training."""

import json

import numpy as np
import pandas as pd
import pytest

from glint.analysis.lesson import analyse, baselines, read_text, routes, scale, shown_group, shown_task
from glint.config.rl import RLRecipe
from glint.manifest import Entry, Manifest
from glint.tasks.tokenizer import encode
from tests.report import synthetic, traces

PROMPT = "# Add one.\ndef increment_aaa(x):\n"


@pytest.mark.parametrize(
    "recipe",
    [
        *(RLRecipe(baseline=rule) for rule in ("leave_one_out", "group_mean", "none", "group_normalised")),
        RLRecipe(baseline="group_normalised", std_ddof=0),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_reward_less_baseline_is_the_advantage_of_the_training(recipe, seed):
    rewards_G, learned_G = traces.random_rewards(recipe, seed)
    np.testing.assert_allclose((rewards_G - baselines(rewards_G, recipe.baseline)) / scale(rewards_G, recipe), learned_G, atol=1e-12)


def test_leaving_one_out_by_hand():
    np.testing.assert_allclose(baselines(np.array([1.0, 0.0, -0.1]), "leave_one_out"), [-0.05, 0.45, 0.5])


def test_the_group_is_the_first_with_the_most_different_rewards():
    group = shown_group(traces.rollouts(RLRecipe()), RLRecipe())
    assert group["group"] == 1
    assert [sample["reward"] for sample in group["samples"]] == list(traces.REWARDS[1])
    for sample in group["samples"]:
        assert sample["reward"] - sample["baseline"] == pytest.approx(sample["advantage"], abs=1e-6)


def test_the_task_is_the_first_by_name():
    examples = synthetic.examples().assign(completion="")
    names = [synthetic.identity("increment", task) for task in range(synthetic.TASKS)]
    assert shown_task(examples, "confirm", "increment")["identity"] == min(names)


def test_the_task_is_one_that_was_asked():
    examples = synthetic.examples().assign(completion="")
    asked = examples[(examples["split"] == "confirm") & (examples["family"] == "increment")]["identity"].tolist()
    for each in range(1, len(asked) + 1):
        assert shown_task(examples, "confirm", "increment", each)["identity"] == min(asked[:each])


def test_a_text_that_the_trace_left_out_is_null():
    assert read_text(traces.next_bytes("increment_aaa").head(0), "increment") is None


def test_a_text_is_read_byte_by_byte_and_marked_where_rl_moved_it_most():
    text = read_text(traces.next_bytes("increment_aaa"), "increment")
    assert text is not None
    assert [place["given"] for place in text["places"]] == encode(traces.COMPLETION, bos=False)
    assert text["turn"] == len(traces.COMPLETION) - 2
    turn = text["places"][text["turn"]]
    assert (turn["before"]["probability"], turn["after"]["probability"]) == (0.5, 0.9)
    assert [token for token, _ in turn["after"]["likeliest"]] == [turn["given"], 4 + ord("<"), 2]


def test_routes_are_those_of_the_answer_and_shares_those_of_the_whole_text():
    route = routes(traces.routing(PROMPT), "increment", PROMPT, 8)
    assert route is not None
    assert route["tokens"] == encode(traces.COMPLETION, bos=False)[:-1]
    assert [row["layer"] for row in route["layers"]] == [0, 1, 2, 3]
    first = len(encode(PROMPT))
    assert route["layers"][2]["experts"] == [(2 + first + place) % 8 for place in range(len(route["tokens"]))]
    assert sum(route["shares"]) == pytest.approx(1)


def test_a_model_without_routes_has_none():
    assert routes(traces.routing(PROMPT).head(0), "increment", PROMPT, 8) is None


def test_the_lesson_is_of_the_first_seed_of_the_arm_in_front(analysed, tmp_path):
    entries = traces.write(tmp_path, analysed / "results/manifest.json")
    analyse(synthetic.config(), Manifest([Entry(**entry) for entry in entries]), tmp_path / "lesson.json")
    lesson = json.loads((tmp_path / "lesson.json").read_text())
    assert (lesson["study"], lesson["arm"], lesson["seed"]) == ("main", "published", 42)
    assert lesson["task"]["family"] == "increment"
    assert None not in lesson.values()


@pytest.mark.parametrize(("solved", "shown"), [(("increment", "double"), "increment"), (("double",), "double"), ((), "increment")])
def test_the_task_is_of_the_first_trained_family_whose_shown_task_was_solved(analysed, tmp_path, solved, shown):
    entries = traces.write(tmp_path, analysed / "results/manifest.json")
    own = {entry["role"]: entry for entry in entries if (entry["study"], entry["arm"], entry["seed"]) == ("main", "published", 42)}
    table = pd.read_parquet(own["after"]["path"])
    headline = (table["mode"] == "greedy") & (table["stop"] == "parses")
    first = table["identity"] == table.groupby("family")["identity"].transform("min")
    # all but the tasks shown, and all answers under the other stop rule, say the opposite
    table["verdict"] = [
        "passed" if (family in solved) == shows else "failed" for family, shows in zip(table["family"], headline & first, strict=True)
    ]
    table.to_parquet(tmp_path / "after.parquet")
    own["after"]["path"] = str(tmp_path / "after.parquet")
    analyse(synthetic.config(), Manifest([Entry(**entry) for entry in entries]), tmp_path / "lesson.json")
    lesson = json.loads((tmp_path / "lesson.json").read_text())
    assert (lesson["task"]["family"], lesson["solved"]) == (shown, bool(solved))
    assert ("was solved after RL" in lesson["rules"]["task"]) == bool(solved)


def test_without_answers_nothing_is_said_about_them(analysed, tmp_path):
    entries = traces.write(tmp_path, analysed / "results/manifest.json")
    entries = [entry | {"path": None} if entry["role"] == "after" else entry for entry in entries]
    analyse(synthetic.config(), Manifest([Entry(**entry) for entry in entries]), tmp_path / "lesson.json")
    lesson = json.loads((tmp_path / "lesson.json").read_text())
    assert (lesson["task"]["family"], lesson["solved"]) == ("increment", None)
    assert "solved" not in lesson["rules"]["task"]


def test_what_a_seed_lacks_is_null(analysed, tmp_path):
    entries = [entry | {"path": None} for entry in traces.write(tmp_path, analysed / "results/manifest.json")]
    analyse(synthetic.config(), Manifest([Entry(**entry) for entry in entries]), tmp_path / "lesson.json")
    lesson = json.loads((tmp_path / "lesson.json").read_text())
    assert [lesson[name] for name in ("task", "group", "next_bytes", "routing")] == [None] * 4
