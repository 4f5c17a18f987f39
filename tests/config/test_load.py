"""A wrong config ends in one sentence that names the key, the nearest valid one and what is allowed."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from glint.config.errors import ConfigError
from glint.config.load import load
from glint.config.tree import Config, Recipe, changes, resolve
from tests.studies import ORDER, VISION

CONFIGS = Path(__file__).parents[2] / "config"
GOOD: dict[str, Any] = {
    "run": "trial",
    "studies": {
        "main": {"question": "Does it help?", "arms": {"published": {}, "shuffled": {"rl": {"shuffle_rewards": True}}}, "seeds": [1, 2]}
    },
}


def changed(path, value, good=GOOD):
    """Return `good` with `value` at the dotted `path`."""
    data = copy.deepcopy(good)
    *parents, last = path.split(".")
    node = data
    for key in parents:
        node = node.setdefault(key, {})
    node[last] = value
    return data


BAD = [
    ("runs", "x", ["key runs is unknown", "did you mean run?", "allowed: run,"]),
    ("recipes.main.rl.gruop_size", 8, ["key recipes.main.rl.gruop_size is unknown", "did you mean group_size?", "temperature"]),
    ("recipes.main.rl.kl.wieght", 8, ["key recipes.main.rl.kl.wieght is unknown", "did you mean weight?", "allowed: weight"]),
    ("studies.main.arms.a.rl.lrr", 8, ["key studies.main.arms.a.rl.lrr is unknown", "did you mean lr?"]),
    ("studies.main.arms.a.rll", {}, ["key studies.main.arms.a.rll is unknown", "did you mean rl?", "several_changes"]),
    ("recipes.main.rl.lr", "1e-3", ["recipes.main.rl.lr should be a valid number, not '1e-3'", "write 1.0e-3"]),
    ("recipes.main.rl.shuffle_rewards", "true", ["recipes.main.rl.shuffle_rewards should be a valid boolean, not 'true'"]),
    ("recipes.main.rl.groups", 9.5, ["recipes.main.rl.groups should be a whole number", "9.5"]),
    ("recipes.main.rl.lr", float("nan"), ["recipes.main.rl.lr should be a finite number"]),
    ("recipes.main.rl.baseline", "leave_one", ["'group_normalised'", "did you mean leave_one_out?"]),
    ("recipes.main.rl.group_size", 1, ["recipes.main.rl.group_size should be greater than or equal to 2, not 1"]),
    ("recipes.main.rl.families", ["evn"], ["recipes.main: rl.families: family evn is unknown", "did you mean even?"]),
    ("recipes.main.rl.families", ["even", "even"], ["family even is given twice"]),
    ("recipes.main.corpus.families", ["even"], ["rl.families: family increment is unknown; allowed: even"]),
    ("recipes.main.selection.families", ["cube"], ["selection.families: family cube is unknown"]),
    ("recipes.main.rl.replay.families", ["cube"], ["rl.replay.families: family cube is unknown"]),
    ("recipes.main.rl.groups", 97, ["rl.groups 97 exceeds the 96 prompts"]),
    ("recipes.main.pretraining.batch", 12801, ["pretraining.batch 12801", "corpus.pretrain_examples is 12800"]),
    ("recipes.main.pretraining.steps", 401, ["401 steps need 12832 examples"]),
    ("recipes.main.pretraining.first_checkpoint", 161, ["first_checkpoint 161 lies beyond the last step, 160"]),
    ("recipes.main.pretraining.curve.checkpoints", [0, 401], ["curve.checkpoints [401] lie beyond the last step, 400"]),
    ("recipes.main.pretraining.sequence", 193, ["pretraining.sequence 193 exceeds model.context 192"]),
    ("recipes.main.evaluation.k", [8, 8], ["recipes.main.evaluation: k names a value twice: [8, 8]"]),
    ("recipes.main.evaluation.stops", ["parses", "parses"], ["recipes.main.evaluation: stops names a value twice"]),
    ("recipes.main.model.window", 193, ["recipes.main.model: window 193 exceeds the context of 192"]),
    ("recipes.main.pretraining.sequence", 1, ["recipes.main.pretraining.sequence", "2"]),
    ("recipes.main.evaluation.k", [1, 9], ["recipes.main.evaluation: k 9 exceeds the 8 samples"]),
    ("recipes.main.evaluation.k", [], ["recipes.main.evaluation.k should have at least 1 item"]),
    ("recipes.main.model.width", 190, ["recipes.main.model: width 190"]),
    ("recipes.main.model.sparse", "denes", ["recipes.main.model.sparse should be 'strided', 'indexed' or 'dense'", "did you mean dense?"]),
    ("recipes.main.model.ffn_hidden", 64, ["recipes.main.model: ffn_hidden 64 means nothing with ffn moe"]),
    ("recipes.main.model", {"layers": 3, "sparse": "dense"}, ["sparse dense means nothing in 3 layers", "linear: none"]),
    ("recipes.main", {"model": {"tied": False}, "rl": {"tied_gradient": "head_only"}}, ["head_only means nothing with model.tied false"]),
    ("recipes.main.model", 3, ["recipes.main.model should be a mapping (key: value), not 3"]),
    ("recipes.main.selection.low", 0.7, ["recipes.main.selection: low 0.7 exceeds high 0.6"]),
    ("studies.main.seeds", [4, 4], ["studies.main: seeds [4] are given twice"]),
    ("studies.main.seeds", ["4"], ["studies.main.seeds[0] should be a whole number, not '4' (it is text: write it without quotes)"]),
    ("studies.main.seeds", 4, ["studies.main.seeds should be a list, not 4 (a list stands in brackets: [1, 2])"]),
    ("studies.main.arms.hot", {"temperature": 0.8}, ["arms.hot.temperature is unknown; it belongs in rl or evaluation; allowed: corpus"]),
    ("studies.main.equal_rollouts", True, ["equal_rollouts is unknown; it belongs in studies.NAME.analysis; allowed: question"]),
    ("studies.main.arms", {}, ["studies.main.arms should have at least 1 item"]),
    ("studies.main.recipe", "mian", ["studies.main.recipe mian is unknown", "did you mean main?"]),
    ("studies.main.analysis.control", "shufled", ["'shufled' is not an arm", "published, shuffled"]),
    ("studies.main.analysis.families", ["cube"], ["studies.main.analysis.families: family cube is unknown"]),
    ("studies.main.analysis.confidence", 1.0, ["studies.main.analysis.confidence should be less than 1"]),
    (
        "studies.main.arms.both",
        {"rl": {"lr": 1.0, "clip": 2.0}},
        ["studies.main.arms.both changes 2 values (rl.lr, rl.clip)", "several_changes"],
    ),
    ("studies.main.arms.same", {"rl": {"group_size": 16}}, ["studies.main.arms.same is the same recipe as studies.main.arms.published"]),
    ("studies.main.question", "", ["studies.main.question should have at least 1 character"]),
    ("studies.main.arms.two\nlines", {}, ["studies.main.arms.'two\\nlines'", "should match pattern"]),
    ("run", "../elsewhere", ["run should match pattern"]),
    ("run", None, ["run should be text, not None"]),
]


MINI: dict[str, Any] = {"model": {"context": 128}, "pretraining": {"steps": 200, "batch": 24}}
WITH_PRETRAINING: dict[str, Any] = GOOD | {
    "recipes": {"main": {}, "mini": MINI},
    "studies": GOOD["studies"] | {"order": ORDER},
}
CONTRAST = "studies.order.analysis.contrasts.order"
BAD_PRETRAINING = [
    (
        "studies.order.kind",
        "pretrain",
        ["studies.order.kind should be 'rl', 'pretraining', 'vision', 'architecture' or 'recall'", "did you mean pretraining?"],
    ),
    (f"{CONTRAST}.arm", "divers", ["contrasts.order: arm divers is unknown", "did you mean diverse?"]),
    (f"{CONTRAST}.against", "diverse", ["contrasts.order compares arm diverse with itself"]),
    (f"{CONTRAST}.steps", [50, 70], ["contrasts.order.steps [70] are not among expressions.checkpoints [20, 40, 50"]),
    (f"{CONTRAST}.steps", [], [f"{CONTRAST}.steps should have at least 1 item"]),
    (f"{CONTRAST}.setps", [50], [f"key {CONTRAST}.setps is unknown", "did you mean steps?"]),
    ("studies.order.analysis.contrasts", {}, ["analysis.contrasts is empty", "which arms it compares"]),
    ("studies.order.analysis.control", "blocked", ["control means nothing in a study of kind pretraining"]),
    ("studies.order.analysis.metric", "cases", ["metric means nothing in a study of kind pretraining"]),
    ("studies.order.split", "dev", ["split means nothing in a study of kind pretraining"]),
    (
        "studies.main.analysis.contrasts",
        {"a": {"arm": "published", "against": "shuffled", "steps": [1]}},
        ["belong to a study of kind pretr"],
    ),
    ("studies.order.arms.lr", {"rl": {"lr": 1.0}}, ["studies.order.arms.lr changes rl, which a study of kind pretraining does not read"]),
    ("studies.main.arms.few", {"expressions": {"structures": 8}}, ["studies.main.arms.few changes expressions, which a study of kind rl"]),
    ("studies.order.arms.few", {"expressions": {"structures": 89}}, ["structures 89 exceeds the 88 that are left when 32 are held out"]),
    ("studies.order.arms.two", {"expressions": {"structures": 9, "order": "blocked"}}, ["changes 2 values (expressions.structures, expr"]),
    ("studies.order.arms.long", {"pretraining": {"steps": 201}}, ["24 x 201 steps need 4824 examples, but expressions.examples is 4800"]),
    (
        "studies.order.arms.short",
        {"pretraining": {"steps": 150}},
        ["expressions.checkpoints [160, 180, 200] lie beyond the last step, 150"],
    ),
    ("recipes.mini.expressions", {"checkpoints": [20, 20]}, ["recipes.mini.expressions: checkpoints [20, 20] must ascend"]),
    ("recipes.mini.expressions", {"generation_steps": [30]}, ["generation_steps [30] are no checkpoints; checkpoints: 20, 40"]),
    ("recipes.mini.expressions", {"order": "curiculum"}, ["did you mean curriculum?"]),
    ("recipes.mini.expressions", {"order": "curriculum", "structures": 8}, ["curriculum_structures 8 must be fewer than structures 8"]),
    ("recipes.mini.expressions", {"order": "curriculum", "curriculum_steps": 200}, ["curriculum_steps 200 leave none of the 200 steps"]),
    (
        "studies.order.arms.other",
        {"expressions": {"evaluation_seed": 1}},
        ["arms.other changes expressions.evaluation_seed", "scored alike"],
    ),
    ("recipes.mini.expressions", {"generation_steps": []}, ["generation_steps should have at least 1 item"]),
    ("recipes.mini.expressions", {"examples": 4801}, ["24 x 200 steps never meet the last blocks of the 4801 expressions.examples"]),
    ("recipes.mini.expressions", {"examples": 400_001}, ["expressions.examples should be less than or equal to 400000"]),
    ("studies", {"order": ORDER}, ["studies: none is of kind rl"]),
]


@pytest.mark.parametrize(("path", "value", "parts"), BAD_PRETRAINING, ids=lambda part: None if isinstance(part, list) else str(part)[:60])
def test_a_bad_pretraining_study_is_one_sentence(path, value, parts):
    load(WITH_PRETRAINING)
    with pytest.raises(ConfigError) as caught:
        load(changed(path, value, WITH_PRETRAINING))
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


WITH_VISION: dict[str, Any] = GOOD | {"studies": GOOD["studies"] | {"digits": VISION}}
PATH = "studies.digits.analysis.contrasts.path"
BAD_VISION = [
    (f"{PATH}.steps", [120, 130], ["contrasts.path.steps [130] are not among vision.checkpoints [0, 20, 40"]),
    ("studies.digits.analysis.contrasts", {}, ["analysis.contrasts is empty: a study of kind vision says which arms"]),
    ("studies.digits.analysis.metric", "cases", ["metric means nothing in a study of kind vision"]),
    ("studies.digits.arms.lr", {"rl": {"lr": 1.0}}, ["arms.lr changes rl, which a study of kind vision does not read"]),
    ("studies.digits.arms.more", {"vision": {"batch": 41}}, ["arms.more changes vision.batch", "must have the same budget"]),
    ("studies.digits.arms.calm", {"vision": {"noise": 0.0}}, ["arms.calm changes vision.noise", "must have the same budget, images"]),
    ("studies.digits.arms.small", {"model": {"context": 32}}, ["arms.small", "exceeds"]),
    ("recipes.main.vision", {"prompt": "x" * 180}, ["recipes.main.vision.prompt should have at most 64 characters"]),
    ("recipes.main.vision", {"path": "direct"}, ["did you mean direct_patch?"]),
    ("recipes.main.vision", {"width": 25}, ["recipes.main.vision: width 25 must be divisible by the heads, 4"]),
    ("recipes.main.vision", {"digit_height": 29}, ["digit_height or digit_width, with shift 2 on both sides, takes 33 of 32 pixels"]),
    ("recipes.main.vision", {"stroke": 6}, ["stroke 6 closes a digit of 20 x 12 pixels"]),
    ("recipes.main.vision", {"checkpoints": [0, 20, 20, 120]}, ["checkpoints [0, 20, 20, 120] must ascend"]),
    ("recipes.main.vision", {"checkpoints": [20, 120]}, ["must begin with 0 and end with the last step, 120"]),
    ("recipes.main.vision", {"steps": 60}, ["must begin with 0 and end with the last step, 60"]),
]


@pytest.mark.parametrize(("path", "value", "parts"), BAD_VISION, ids=lambda part: None if isinstance(part, list) else str(part)[:60])
def test_a_bad_vision_study_is_one_sentence(path, value, parts):
    load(WITH_VISION)
    with pytest.raises(ConfigError) as caught:
        load(changed(path, value, WITH_VISION))
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("model", [{"sparse": "indexed"}, {"router": "sigmoid"}])
def test_training_on_images_refuses_models_that_it_would_not_train_whole(model):
    with pytest.raises(ConfigError, match=r"training on images teaches no indexer and balances no bias"):
        load(WITH_VISION | {"recipes": {"main": {"model": model}}})


def test_an_image_and_its_prompt_must_fit_the_context():
    short = {"model": {"context": 32, "window": 32}, "pretraining": {"sequence": 32}, "rl": {"max_new_tokens": 32}}
    recipe = short | {"evaluation": {"max_new_tokens": 32}, "vision": {"prompt": "What digit is this?"}}
    with pytest.raises(ConfigError, match=r"an image and vision.prompt take 38 tokens, but model.context is 32"):
        load(WITH_VISION | {"recipes": {"main": recipe}})


@pytest.mark.parametrize(("path", "value", "parts"), BAD, ids=lambda part: None if isinstance(part, list) else str(part)[:50])
def test_a_bad_value_is_one_sentence(path, value, parts):
    data = changed(path, value)
    with pytest.raises(ConfigError) as caught:
        load(data)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for part in parts:
        assert part in sentence


def test_a_metric_needs_its_k():
    data = changed("studies.main.analysis.metric", "pass8")
    load(data)
    data["recipes"] = {"main": {"evaluation": {"k": [1]}}}
    with pytest.raises(ConfigError, match=r"metric pass8 needs 8 among evaluation\.k, which is \[1\]"):
        load(data)


def test_a_study_that_is_nothing_is_left_out():
    assert load(changed("studies.order", None)) == load(GOOD)
    with pytest.raises(ConfigError, match="studies should have at least 1 item"):
        load(changed("studies.main", None))


def test_what_is_no_mapping_is_one_sentence(tmp_path):
    broken = tmp_path / "broken.yaml"
    broken.write_text("run: [unclosed\nstudies: }")
    for source, part in {
        tmp_path / "absent.yaml": r"absent\.yaml cannot be read: No such file",
        broken: r"broken\.yaml is not valid YAML",
    }.items():
        with pytest.raises(ConfigError, match=part):
            load(source)
    with pytest.raises(ConfigError, match="the config should be a mapping"):
        load([])  # type: ignore[arg-type]


def test_an_arm_may_change_several_values_if_it_says_why():
    data = changed("studies.main.arms.both", {"rl": {"lr": 1.0e-4, "clip": 2.0}, "several_changes": "they interact"})
    assert resolve(load(data), "main", "both").rl.clip == 2.0


def test_changes_counts_leaves_and_lists_as_one():
    other = Recipe.model_validate_json('{"rl": {"families": ["even"], "groups": 8, "kl": {"weight": 0.1}}}')
    assert changes(Recipe(), other) == {"rl.families": ["even"], "rl.groups": 8, "rl.kl.weight": 0.1}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_configs_load(path):
    data = yaml.safe_load(path.read_text())
    if "studies" in data:
        assert load(path).run == path.stem


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["1e-3", "true", "even", [], {}])
keys = st.text(max_size=8) | st.integers()
trees = st.recursive(scalars, lambda child: st.lists(child, max_size=3) | st.dictionaries(keys, child, max_size=3), max_leaves=8)


def paths(node, prefix=""):
    """Yield the dotted path of every key of a nested dictionary."""
    for key, value in node.items():
        yield prefix + key
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{key}.")


FULL = GOOD | {"recipes": {"main": Recipe().model_dump(mode="json")}}
KEYS = sorted({*paths(FULL), "studies.main.analysis.metric", "studies.main.arms.a", "studies.main.arms.a.rl.lr", "recipes.main.rl.new"})


def outcome(data):
    """Return what `load` says of `data`: the config, or its one sentence; anything else it raises fails the test."""
    try:
        return load(data)
    except ConfigError as error:
        return str(error)


MINI_KEYS = sorted(
    {
        *paths({"studies": {"order": ORDER}}),
        *paths({"recipes": {"mini": {"expressions": Recipe().expressions.model_dump(mode="json")}}}),
        "studies.order.arms.diverse.expressions.structures",
    }
)


VISION_KEYS = sorted(
    {
        *paths({"studies": {"digits": VISION}}),
        *paths({"recipes": {"main": {"vision": Recipe().vision.model_dump(mode="json")}}}),
        "studies.digits.arms.faithful.vision.lr",
    }
)


@pytest.mark.parametrize(("keys", "good"), [(KEYS, GOOD), (MINI_KEYS, WITH_PRETRAINING), (VISION_KEYS, WITH_VISION)])
@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_any_value_at_any_key_is_valid_or_one_sentence(keys, good, data):
    said = outcome(changed(data.draw(st.sampled_from(keys)), data.draw(trees), good))
    assert isinstance(said, Config) or "\n" not in said


@settings(max_examples=100, deadline=None)
@given(data=trees)
def test_any_data_is_one_sentence(data):
    assert "\n" not in outcome(data)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("corpus", "families", ["increment", "double", "even"]),
        ("corpus", "cases_per_task", 2),
        ("corpus", "evaluation_seed", 1),
        ("corpus", "confirm_tasks_per_family", 4),
        ("evaluation", "stops", ["eos"]),
        ("evaluation", "k", [1, 2]),
    ],
)
def test_arms_of_an_rl_study_meet_the_same_tasks_and_are_scored_alike(section, key, value):
    said = rf"studies\.main\.arms\.other changes {section}\.{key}, but arms that are compared must meet the same tasks"
    with pytest.raises(ConfigError, match=said):
        load(changed("studies.main.arms.other", {section: {key: value}}))
    load(changed(f"recipes.main.{section}.{key}", value))


def test_arms_that_train_other_families_name_those_that_are_compared():
    data = changed("studies.main.arms.other", {"rl": {"families": ["increment", "double", "reverse"]}})
    with pytest.raises(
        ConfigError, match=r"arms\.other trains other families than arm published; name .* studies\.main\.analysis\.families"
    ):
        load(data)
    load(changed("studies.main.analysis.families", ["increment"], data))
    load(changed("studies.main.arms.other", {"rl": {"families": ["even", "double", "increment"]}}))


def test_the_report_opens_with_main_however_the_studies_are_ordered():
    studies = {"aside": GOOD["studies"]["main"], "main": GOOD["studies"]["main"], "zoo": GOOD["studies"]["main"]}
    for names in (["aside", "main", "zoo"], ["zoo", "main", "aside"]):
        assert load(GOOD | {"studies": {name: studies[name] for name in names}}).rl_studies() == ("main", "aside", "zoo")
    assert load(GOOD | {"studies": {name: studies[name] for name in ("zoo", "aside")}}).rl_studies() == ("aside", "zoo")


SCREEN = changed("studies.main.analysis", {"equal_rollouts": True}, changed("recipes.main.rl", {"groups": 16, "group_size": 8}))


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("studies.main.arms.small", {"rl": {"group_size": 4}}, ["studies.main.analysis.equal_rollouts", "published 128", "small 64"]),
        ("studies.main.tasks_per_family", 9, ["studies.main.tasks_per_family 9 exceeds corpus.confirm_tasks_per_family 8"]),
        ("recipes.main.rl.tasks_per_family", 33, ["rl.tasks_per_family 33 exceeds corpus.rl_tasks_per_family 32"]),
        ("recipes.main.rl.tasks_per_family", 5, ["rl.groups 16 exceeds the 15 prompts", "3 rl.families x rl.tasks_per_family 5"]),
    ],
)
def test_a_screen_that_does_not_fit_is_one_sentence(path, value, parts):
    with pytest.raises(ConfigError) as error:
        load(changed(path, value, SCREEN))
    assert all(part in str(error.value) for part in parts)


def test_equal_budgets_of_other_shapes_are_taken():
    arm = {"rl": {"groups": 32, "group_size": 4}, "several_changes": "the budget stays"}
    assert load(changed("studies.main.arms.small", arm, SCREEN)).studies["main"].analysis.equal_rollouts


@pytest.mark.parametrize(("name", "value"), [("start_seed", 42), ("tasks_per_family", 4), ("curve", False)])
def test_a_pretraining_study_refuses_what_only_rl_reads(name, value):
    good = changed("recipes", {"main": {}, "mini": {"pretraining": {"steps": 200, "batch": 24}}})
    with pytest.raises(ConfigError, match=f"{name} means nothing in a study of kind pretraining"):
        load(changed("studies.order", ORDER | {name: value}, good))
