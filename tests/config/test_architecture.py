"""Studies of kind architecture, and models by the name of a preset."""

from typing import Any

import pytest
import torch

from glint.config.errors import ConfigError
from glint.config.load import load
from glint.config.model import PRESETS
from glint.config.tree import changes, resolve
from glint.model.decoder import Decoder, count_parameters
from tests.config.test_load import CONFIGS, GOOD, changed
from tests.studies import ARCHITECTURE

WITH_ARCHITECTURE: dict[str, Any] = GOOD | {"studies": GOOD["studies"] | {"structure": ARCHITECTURE}}
FLOPS = "studies.structure.analysis.contrasts.flops"


def model(given):
    """Return the model of an arm of the rl study that is `given`, laid over the default recipe."""
    config = load(changed("studies.main.arms.other", {"model": given, "several_changes": "a model of its own"}))
    return resolve(config, "main", "other").model


@pytest.mark.parametrize("given", ["dense", {"preset": "dense"}])
def test_a_preset_stands_for_its_values_in_a_recipe_and_in_an_arm(given):
    assert load(changed("recipes.main.model", given)).recipes["main"].model == PRESETS["dense"]
    assert model(given) == PRESETS["dense"]


def test_further_keys_are_laid_over_a_preset():
    assert model({"preset": "dense", "ffn_hidden": 1700}) == PRESETS["dense"].model_copy(update={"ffn_hidden": 1700})


def test_a_preset_replaces_what_the_recipe_has_changed():
    data = changed("recipes.main.model", {"width": 96})
    data = changed("studies.main.arms.other", {"model": "dense", "several_changes": "another model"}, data)
    assert resolve(load(data), "main", "other").model == PRESETS["dense"]


def test_an_arm_that_names_a_preset_says_why_it_changes_several_values():
    with pytest.raises(ConfigError, match=r"arms\.other changes 9 values \(model\.linear, model\.sparse, .* several_changes"):
        load(changed("studies.main.arms.other", {"model": "dense"}))


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        (
            "recipes.main.model",
            "dens",
            ["recipes.main.model: preset dens is unknown", "did you mean dense?", "allowed: hybrid, faithful, dense"],
        ),
        ("recipes.main.model", {"preset": ["x"]}, ["recipes.main.model: preset ['x'] is unknown"]),
        ("studies.main.arms.other.model", "hybird", ["arms.other.model: preset hybird is unknown", "did you mean hybrid?"]),
        ("recipes.main.model", {"preset": "dense", "witdh": 3}, ["key recipes.main.model.witdh is unknown", "did you mean width?"]),
        (f"{FLOPS}.against_steps", [60, 63], ["contrasts.flops: against_steps [60, 63] must name one step for each of the steps [160]"]),
        (f"{FLOPS}.steps", [161], ["studies.structure.analysis.contrasts.flops.steps [161] lie beyond the last step of pretraining, 160"]),
        (f"{FLOPS}.against_steps", [400], ["contrasts.flops.against_steps [400] lie beyond the last step of pretraining, 160"]),
        ("studies.structure.arms.lr", {"pretraining": {"lr": 1.0}}, ["arms.lr changes pretraining, but the arms", "their model alone"]),
        (
            f"{FLOPS}.steps",
            [160, 160],
            ["contrasts.flops: against_steps [63] must name one step for each of the steps [160, 160]"],
        ),
        (
            "studies.structure.analysis.contrasts.again",
            {"arm": "single", "against": "hybrid", "steps": [160]},
            ["contrasts.again compares arm single at step 160 with arm hybrid at step 160, as analysis.contrasts.streams does already"],
        ),
        (
            "studies.structure.analysis.contrasts.streams.steps",
            [160, 160],
            ["contrasts.streams compares arm hybrid at step 160 with arm single at step 160, as analysis.contrasts.streams does already"],
        ),
        ("studies.structure.split", "dev", ["split means nothing in a study of kind architecture"]),
        ("studies.structure.analysis.contrasts", {}, ["analysis.contrasts is empty: a study of kind architecture says"]),
        ("recipes.main.costs", {"contexts": [128]}, ["recipes.main.costs.contexts should have at least 2 items"]),
        ("recipes.main.costs", {"contexts": [128, 64]}, ["recipes.main.costs: contexts [128, 64] must ascend"]),
    ],
    ids=lambda part: None if isinstance(part, list) else str(part)[:60],
)
def test_a_bad_value_is_one_sentence(path, value, parts):
    load(WITH_ARCHITECTURE)
    with pytest.raises(ConfigError) as caught:
        load(changed(path, value, WITH_ARCHITECTURE))
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_other_kinds_compare_at_the_same_steps():
    path = {"arm": "faithful", "against": "direct_patch", "steps": [120], "against_steps": [60]}
    arms = {"faithful": {}, "direct_patch": {"vision": {"path": "direct_patch"}}}
    digits = {"question": "Which?", "kind": "vision", "arms": arms, "seeds": [1], "analysis": {"contrasts": {"path": path}}}
    with pytest.raises(ConfigError, match=r"contrasts\.path\.against_steps means nothing in a study of kind vision"):
        load(GOOD | {"studies": GOOD["studies"] | {"digits": digits}})


def test_the_steps_of_an_arm_are_those_at_which_it_is_compared():
    study = load(WITH_ARCHITECTURE).studies["structure"]
    assert {arm: study.compared_steps(arm) for arm in study.arms} == {"hybrid": (100, 160), "single": (100, 160), "dense": (63,)}
    assert study.analysis.contrasts["streams"].pairs == ((100, 100), (160, 160))


def test_arms_change_the_model_alone():
    config = load(WITH_ARCHITECTURE)
    recipes = [resolve(config, "structure", arm) for arm in ("hybrid", "dense")]
    assert all(key.startswith("model.") for key in changes(*recipes))


def parameters(recipe):
    """Return how many parameters a model has, and how many a token uses."""
    with torch.device("meta"):
        decoder = Decoder(recipe)
    return count_parameters(decoder), count_parameters(decoder, active=True)


@pytest.mark.parametrize("name", ["architecture", "architecture-quick"])
def test_the_arms_of_the_shipped_studies_have_the_sizes_and_flops_that_they_claim(name):
    config = load(CONFIGS / f"{name}.yaml")
    study = config.studies["structure"]
    counts = {arm: parameters(resolve(config, "structure", arm).model) for arm in study.arms}
    total, active = counts[study.base]
    assert {arm for arm, (own, _) in counts.items() if abs(own / total - 1) > 0.01} == {"dense_small"}
    assert counts["dense_small"][0] == pytest.approx(active, rel=0.01)
    contrasts = study.analysis.contrasts
    at_equal_flops = {label for label in contrasts if label.endswith("_flops")}
    assert at_equal_flops >= {"experts_flops", "together_flops", "sparsity_flops"}
    for label, contrast in contrasts.items():
        for step, against_step in contrast.pairs:
            assert label in at_equal_flops or step == against_step
            if label in at_equal_flops:
                assert counts[contrast.against][1] * against_step == pytest.approx(counts[contrast.arm][1] * step, rel=0.02)
    assert {resolve(config, "main", "dense").model} <= {resolve(config, "structure", arm).model for arm in study.arms}


@pytest.mark.parametrize("name", ["architecture", "architecture-quick"])
def test_the_numbers_in_the_comments_of_the_shipped_studies_are_counted(name):
    config = load(CONFIGS / f"{name}.yaml")
    text = (CONFIGS / f"{name}.yaml").read_text()
    for arm in ("hybrid", "dense", "dense_small"):
        assert f"{parameters(resolve(config, 'structure', arm).model)[0]:,}" in text


def test_the_arms_of_the_shipped_recall_study_are_equally_large_and_have_the_sizes_in_its_comments():
    config = load(CONFIGS / "architecture.yaml")
    text = (CONFIGS / "architecture.yaml").read_text()
    counts = {arm: parameters(resolve(config, "recall", arm).model)[0] for arm in config.studies["recall"].arms}
    assert set(counts) == {"hybrid", "dense", "kda", "indexed", "faithful"}
    assert all(abs(own / counts["hybrid"] - 1) <= 0.01 and f"{own:,}" in text for own in counts.values())
