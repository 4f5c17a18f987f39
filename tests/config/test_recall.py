"""Studies of kind recall: what cannot be asked of a text, a model or an arm is one sentence."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glint.config.errors import ConfigError
from glint.config.load import load
from glint.config.recall import RecallJob, RecallRecipe
from glint.config.tree import Config, resolve
from tests.config.test_load import GOOD, changed, outcome, paths, trees
from tests.studies import NAMES, RECALL

WITH_RECALL: dict[str, Any] = GOOD | {
    "recipes": {"main": {}, "names": {"recall": NAMES}},
    "studies": GOOD["studies"] | {"names": RECALL},
}
RECIPE = "recipes.names.recall"
STREAMS = "studies.names.analysis.contrasts.streams"


def stages(*lengths):
    return [{"length": length, "batch": 2, "steps": 3} for length in lengths]


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        (f"{RECIPE}.distances", [16, 8], [f"{RECIPE}: distances [16, 8] must ascend"]),
        (f"{RECIPE}.distances", [8, 8], ["distances [8, 8] must ascend"]),
        (f"{RECIPE}.distances", [2, 8], ["distances [2, 8] must not be less than the 3 bytes that a name takes"]),
        (f"{RECIPE}.distances", [], [f"{RECIPE}.distances should have at least 1 item"]),
        (f"{RECIPE}.distances", [8, 85], ["a scored text of 96 bytes is too short for distance 85; it takes at least 109"]),
        (f"{RECIPE}.questions", 5, ["questions 5 must be divisible by the number of distances, 2"]),
        (f"{RECIPE}.unasked", 23, ["questions 4 and unasked 23 need more than the 26 initials there are"]),
        (f"{RECIPE}.questions", 8, ["stages: names take 51 bytes of a scored text, more than half of its 96"]),
        (f"{RECIPE}.letters", 9, [f"{RECIPE}.letters should be less than or equal to 8, not 9"]),
        (f"{RECIPE}.nearest", 2, ["nearest 2 must lie between the 3 bytes of a name and the longest distance in a text of 48 bytes, 16"]),
        (f"{RECIPE}.nearest", 17, ["nearest 17 must lie between", "in a text of 48 bytes, 16"]),
        (f"{RECIPE}.stages", stages(15, 96), ["nearest 4 must lie between the 3 bytes of a name", "in a text of 15 bytes, 3"]),
        (f"{RECIPE}.stages", [], [f"{RECIPE}.stages should have at least 1 item"]),
        (f"{RECIPE}.stages", [{"lenght": 48}], [f"key {RECIPE}.stages[0].lenght is unknown", "did you mean length?"]),
        (
            f"{RECIPE}.stages",
            stages(48, 193),
            ["names.arms.hybrid: a text of recall.stages has 193 bytes, but model.context is 192"],
        ),
        (f"{RECIPE}.stages", stages(193, 96), ["a text of recall.stages has 193 bytes, but model.context is 192"]),
        (f"{RECIPE}.checkpoints", [0, 4, 4, 6], ["checkpoints [0, 4, 4, 6] must ascend"]),
        (f"{RECIPE}.checkpoints", [4, 6], ["checkpoints [4, 6] must begin with 0 and end with the last step, 6"]),
        (f"{RECIPE}.checkpoints", [0, 7], ["checkpoints [0, 7] must begin with 0 and end with the last step, 6"]),
        (f"{STREAMS}.steps", [4, 5], ["contrasts.streams.steps [5] are not among recall.checkpoints [0, 4, 6]"]),
        (f"{STREAMS}.against_steps", [4, 6], ["against_steps means nothing in a study of kind recall"]),
        ("studies.names.analysis.contrasts", {}, ["analysis.contrasts is empty: a study of kind recall says which arms it compares"]),
        ("studies.names.analysis.metric", "cases", ["metric means nothing in a study of kind recall"]),
        ("studies.names.split", "dev", ["split means nothing in a study of kind recall"]),
        (
            "studies.names.arms.lr",
            {"rl": {"lr": 1.0}},
            ["arms.lr changes rl, but the arms of a study of kind recall differ in their"],
        ),
        (
            "studies.names.arms.near",
            {"recall": {"nearest": 5}},
            ["studies.names.arms.near.recall is unknown", "allowed: corpus, model"],
        ),
    ],
    ids=lambda part: None if isinstance(part, list) else str(part)[:60],
)
def test_a_bad_recall_study_is_one_sentence(path, value, parts):
    load(WITH_RECALL)
    with pytest.raises(ConfigError) as caught:
        load(changed(path, value, WITH_RECALL))
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_any_value_at_any_key_is_valid_or_one_sentence(data):
    keys = sorted(
        {*paths({"studies": {"names": RECALL}}), *paths({"recipes": {"names": {"recall": RecallRecipe().model_dump(mode="json")}}})}
    )
    said = outcome(changed(data.draw(st.sampled_from(keys)), data.draw(trees), WITH_RECALL))
    assert isinstance(said, Config) or "\n" not in said


def test_every_arm_must_hold_the_longest_text():
    data = changed(f"{RECIPE}.stages", stages(48, 130), WITH_RECALL)
    load(data)
    with pytest.raises(ConfigError, match=r"arms\.short: a text of recall\.stages has 130 bytes, but model\.context is 128"):
        load(changed("studies.names.arms.short", {"model": {"context": 128}}, data))


def test_the_defaults_fit_together():
    plan = RecallRecipe()
    assert plan.checkpoints[-1] == plan.steps == sum(stage.steps for stage in plan.stages)
    model = {"context": plan.longest}
    recall = RECALL | {"analysis": {"contrasts": {"streams": {"arm": "hybrid", "against": "single", "steps": [plan.steps]}}}}
    load(GOOD | {"recipes": {"main": {}, "names": {"model": model}}, "studies": GOOD["studies"] | {"names": recall}})


def test_stages_follow_one_another():
    plan = load(WITH_RECALL).recipes["names"].recall
    assert [plan.stage(step).length for step in range(6)] == [48] * 4 + [96] * 2
    assert (plan.length, plan.longest, plan.steps, plan.span) == (96, 96, 6, 3)
    shorter = load(changed(f"{RECIPE}.stages", stages(150, 96), WITH_RECALL)).recipes["names"].recall
    assert (shorter.length, shorter.longest) == (96, 150)


def test_a_training_text_states_fewer_names_the_shorter_it_is():
    plan = load(WITH_RECALL).recipes["names"].recall
    assert [plan.most_names(length) for length in (17, 18, 44, 45, 96)] == [1, 2, 4, 5, 5]
    assert [plan.farthest(length) for length in (16, 27, 28, 96)] == [4, 15, 16, 16]


def test_an_arm_of_another_model_is_a_job_of_the_same_texts():
    config = load(WITH_RECALL)
    ours, theirs = (RecallJob.of(resolve(config, "names", arm), 7) for arm in ("hybrid", "single"))
    assert ours.recall == theirs.recall
    assert (ours.model.residual, theirs.model.residual) == ("mixed", "single")
