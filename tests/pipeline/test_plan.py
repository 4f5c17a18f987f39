"""What a config asks for: shared jobs are one job, and a change names exactly the jobs that it affects."""

import json
from importlib import util
from typing import Any

import pytest

from glint.config.load import load
from glint.config.model import OPTIONAL_MODULES
from pipeline.plan import ROLES, Arms, Id, Plan
from tests import studies

BASE: dict[str, Any] = {
    "run": "trial",
    "studies": {
        "main": {"question": "Does it help?", "arms": {"published": {}, "shuffled": {"rl": {"shuffle_rewards": True}}}, "seeds": [42, 7]}
    },
}


def plan(recipe=None, **study):
    """Return the plan of BASE with the main recipe and the study changed."""
    return Plan(load(BASE | {"recipes": {"main": recipe or {}}, "studies": {"main": BASE["studies"]["main"] | study}}))


def slices(of):
    return {job: of.jobs[job].recipe for job in of.jobs}


def different(before, after):
    """Return the stages with a job of `after` that `before` lacks or asks differently."""
    known = slices(before)
    return {job.stage for job, recipe in slices(after).items() if known.get(job) != recipe}


TRAINED = {"rl", "evaluate/curve", "evaluate/after", "trace"}
STARTED = {"select", "evaluate/before", *TRAINED}


def test_arms_share_all_that_precedes_rl():
    counts = {stage: len(plan().stage(stage)) for stage in {job.stage for job in plan().jobs}}
    assert counts == {
        "corpus": 2,
        "pretrain": 2,
        "evaluate/pretraining": 2,
        "select": 2,
        "evaluate/before": 2,
        "rl": 4,
        "evaluate/curve": 4,
        "evaluate/after": 4,
        "trace": 4,
    }


@pytest.mark.parametrize(
    ("recipe", "stages"),
    [
        ({"rl": {"lr": 1.0e-4}}, TRAINED),
        ({"selection": {"low": 0.3}}, STARTED),
        ({"evaluation": {"samples": 16}}, {"evaluate/before", "evaluate/curve", "evaluate/after", "trace"}),
        ({"evaluation": {"k": [1, 4]}}, set()),
        ({"evaluation": {"max_new_tokens": 40}}, {"evaluate/pretraining", *STARTED}),
        ({"pretraining": {"lr": 1.0e-3}}, {"pretrain", "evaluate/pretraining", *STARTED}),
        ({"corpus": {"cases_per_task": 4}}, {"corpus", "pretrain", "evaluate/pretraining", *STARTED}),
        ({"pretraining": {"curve": {"checkpoints": [0, 300, 400]}}}, {"pretrain", "evaluate/pretraining"}),
    ],
)
def test_a_changed_value_names_the_stages_it_affects(recipe, stages):
    assert different(plan(), plan(recipe)) == stages


def test_the_longer_curve_of_one_seed_changes_that_seed_alone():
    before, after = slices(plan()), slices(plan({"pretraining": {"curve": {"checkpoints": [0, 300, 400]}}}))
    assert {job.seed for job in after if before.get(job) != after[job]} == {42}


def test_a_new_seed_leaves_the_jobs_of_the_others():
    assert set(slices(plan()).items()) < set(slices(plan(seeds=[42, 7, 1])).items())


def test_a_changed_arm_leaves_the_jobs_of_the_others():
    before, after = plan(), plan(arms={"published": {}, "shuffled": {"rl": {"zero_spread": "update"}}})
    assert different(before, after) == TRAINED
    kept = {job.id for job in after.stage("rl")} & {job.id for job in before.stage("rl")}
    assert len(kept) == 2


def test_order_of_keys_and_lists_of_names_mean_nothing():
    turned = {"studies": {"main": dict(reversed(BASE["studies"]["main"].items())) | {"seeds": [7, 42]}}, "run": "trial"}
    assert slices(Plan(load(turned))) == slices(plan())
    assert Plan(load(turned)).manifest() == plan().manifest()


def test_recipes_that_differ_in_the_curve_alone_share_one_training():
    recipes = {"main": {}, "long": {"pretraining": {"curve": {"seeds": [7], "steps": 300, "checkpoints": [250]}}}}
    both = {"main": BASE["studies"]["main"], "other": BASE["studies"]["main"] | {"recipe": "long"}}
    shared = Plan(load({"run": "trial", "recipes": recipes, "studies": both}))
    found = {job.id.seed: json.loads(job.recipe) for job in shared.stage("pretrain")}
    assert {seed: job["steps"] for seed, job in found.items()} == {42: 400, 7: 300}
    assert 250 in found[7]["checkpoints"]
    assert "step-0250" in next(job for job in shared.stage("evaluate/pretraining") if job.id.seed == 7).recipe


def test_manifest_names_every_role_of_every_run():
    entries = plan().manifest()
    roles = {role for role, (stage, _) in ROLES.items() if stage not in ("expressions", "vision", "loss", "costs", "recall")}
    assert len(entries) == 2 * 2 * len(roles)
    assert {entry["role"] for entry in entries} == roles
    before = [entry["path"] for entry in entries if entry["role"] == "before"]
    assert len(before) == 4
    assert len(set(before)) == 2


def test_the_mutants_meet_the_weakest_judges_of_all_arms():
    main = BASE["studies"]["main"] | {"arms": {"published": {}, "shorter": {"evaluation": {"property_inputs": 100}}}}
    recipes = {"main": {}, "fewer": {"corpus": {"cases_per_task": 2}}}
    asked = Plan(
        load(BASE | {"recipes": recipes, "studies": {"main": main, "fewer": BASE["studies"]["main"] | {"recipe": "fewer"}}})
    ).mutation()
    assert (asked.reward_cases, asked.property_inputs) == (2, 100)


ORDER = studies.ORDER | {"seeds": [42, 7]}


def with_pretraining(mini=None, order=ORDER):
    recipes = {"main": {}, "mini": {"pretraining": {"steps": 200, "batch": 24}} | (mini or {})}
    return Plan(load(BASE | {"recipes": recipes, "studies": BASE["studies"] | {"order": order}}))


def test_a_pretraining_study_is_one_job_an_arm_and_seed_whatever_it_compares():
    jobs = with_pretraining().stage("expressions")
    assert len(jobs) == 2 * 2
    assert {job.id.key for job in jobs} == {job.id.key for job in with_pretraining(order=ORDER | {"seeds": [42]}).stage("expressions")}
    shared = with_pretraining(order=ORDER | {"arms": ORDER["arms"] | {"repeated": {"expressions": {"structures": 8}}}})
    assert {job.id for job in jobs} < {job.id for job in shared.stage("expressions")}


def test_a_pretraining_study_leaves_the_jobs_of_the_others_as_they_are():
    assert set(slices(plan()).items()) < set(slices(with_pretraining()).items())
    assert with_pretraining().mutation() == plan().mutation()


@pytest.mark.parametrize(
    "mini",
    [
        {"pretraining": {"steps": 200, "batch": 24, "first_checkpoint": 10, "curve": {"seeds": [7]}}},
        {"rl": {"lr": 1.0}, "evaluation": {"samples": 16}},
    ],
)
def test_what_a_pretraining_study_does_not_read_changes_none_of_its_jobs(mini):
    assert slices(with_pretraining(mini)) == slices(with_pretraining())


def test_its_manifest_names_scores_and_written_expressions():
    entries = [entry for entry in with_pretraining().manifest() if entry["study"] == "order"]
    assert {entry["role"] for entry in entries} == {"expressions_receipt", "expression_scores", "expression_completions"}
    assert len(entries) == 2 * 2 * 3


DIGITS = studies.VISION | {"seeds": [42, 7]}


def with_vision(main=None, **study):
    recipes = {"main": main or {}}
    return Plan(load(BASE | {"recipes": recipes, "studies": BASE["studies"] | {"digits": DIGITS | study}}))


def test_a_vision_study_from_random_weights_is_one_job_an_arm_and_seed():
    before, after = plan(), with_vision()
    assert set(slices(before).items()) < set(slices(after).items())
    added = [job for job in after.jobs.values() if job.id not in before.jobs]
    assert [job.id.stage for job in added] == ["vision"] * 4
    assert all(job.sources == {} for job in added)
    assert after.mutation() == before.mutation()


def test_one_from_the_selected_checkpoint_shares_what_leads_rl_to_its_start():
    before, after = plan(), with_vision({"vision": {"start": "selected"}})
    added = [job for job in after.jobs.values() if job.id not in before.jobs]
    assert [job.id.stage for job in added] == ["vision"] * 4
    start = {"pretrain", "select"}
    for job in added:
        assert set(job.sources) == start
        known = {(before.jobs[source].id, before.jobs[source].recipe) for source in job.sources.values()}
        assert known == {(source, after.jobs[source].recipe) for source in job.sources.values()}


def test_another_pretraining_is_another_vision_job_from_its_checkpoint_alone():
    for start, changed in (("selected", 4), ("random", 0)):
        one, other = (with_vision({"vision": {"start": start}, "pretraining": {"lr": lr}}) for lr in (3.0e-4, 1.0e-3))
        assert len({job.id for job in other.stage("vision")} - {job.id for job in one.stage("vision")}) == changed


def test_its_manifest_names_its_own_results_alone():
    entries = [entry for entry in with_vision({"vision": {"start": "selected"}}).manifest() if entry["study"] == "digits"]
    assert {entry["role"] for entry in entries} == {"vision_predictions", "vision_receipt"}
    assert len(entries) == 2 * 2 * 2


NAMES = studies.RECALL | {"seeds": [42, 7]}


def with_recall(main=None, names=studies.NAMES):
    recipes = {"main": main or {}, "names": (main or {}) | {"recall": names}}
    return Plan(load(BASE | {"recipes": recipes, "studies": BASE["studies"] | {"names": NAMES}}))


def test_a_recall_study_is_one_job_an_arm_and_seed_beside_the_others():
    before, after = plan(), with_recall()
    assert set(slices(before).items()) < set(slices(after).items())
    added = [job for job in after.jobs.values() if job.id not in before.jobs]
    assert sorted((job.id.stage, job.id.seed) for job in added) == [("recall", 7), ("recall", 7), ("recall", 42), ("recall", 42)]
    assert all(job.sources == {} for job in added)
    assert after.mutation() == before.mutation()


def test_only_model_and_texts_make_another_recall_job():
    one = {job.id for job in with_recall().stage("recall")}
    assert {job.id for job in with_recall({"pretraining": {"lr": 1.0e-3}, "rl": {"lr": 1.0}}).stage("recall")} == one
    for other in (with_recall({"model": {"norm_epsilon": 1.0e-4}}), with_recall(names=studies.NAMES | {"lr": 1.0e-3})):
        assert not {job.id for job in other.stage("recall")} & one


def test_its_manifest_names_what_was_recalled():
    entries = [entry for entry in with_recall().manifest() if entry["study"] == "names"]
    assert {entry["role"] for entry in entries} == {"recall_predictions", "recall_receipt"}
    assert len(entries) == 2 * 2 * 2


STRUCTURE = studies.ARCHITECTURE | {"seeds": [42, 7]}


def with_architecture(study=STRUCTURE, **more):
    return Plan(load(BASE | {"studies": BASE["studies"] | {"structure": study} | more}))


def test_an_architecture_study_shares_the_pretraining_of_an_rl_study_and_keeps_the_steps_that_it_compares():
    before, after = plan(), with_architecture()
    assert {job.id for job in before.jobs.values()} < {job.id for job in after.jobs.values()}
    assert len(after.stage("pretrain")) == 2 * (1 + 2)  # the hybrid is that of the rl study
    runs = {(run.arm, run.seed): run.stages for run in after.runs if run.study == "structure"}
    for arm, extra in {"hybrid": (), "single": (), "dense": (63,)}.items():
        checkpoints = json.loads(after.jobs[runs[arm, 7]["pretrain"]].recipe)["checkpoints"]
        assert checkpoints == sorted({*range(60, 161, 20), *extra})
        names = [f"step-{step:04d}" for step in checkpoints]
        for stage in ("evaluate/pretraining", "loss"):
            assert json.loads(after.jobs[runs[arm, 7][stage]].recipe)["checkpoints"] == names
    assert runs["hybrid", 7]["pretrain"] in before.jobs


def test_a_step_between_the_candidates_changes_no_other_job_of_the_rl_study():
    contrast = {"arm": "hybrid", "against": "single", "steps": [77]}
    before, after = with_architecture(), with_architecture(STRUCTURE | {"analysis": {"contrasts": {"streams": contrast}}})
    changed = {job.stage for job in before.jobs if before.jobs[job].recipe != after.jobs[job].recipe}
    assert changed == {"pretrain", "evaluate/pretraining", "loss"}


def test_what_a_model_costs_is_measured_once_an_arm():
    jobs = with_architecture().stage("costs")
    assert len(jobs) == 3
    assert {(job.id.seed, tuple(job.sources)) for job in jobs} == {(7, ())}


def test_its_manifest_names_what_training_wrote_and_its_own_results():
    entries = [entry for entry in with_architecture().manifest() if entry["study"] == "structure" and entry["arm"] == "dense"]
    trained = {"examples", "pretrain_metrics", "pretrain_receipt", "pretrain_dev", "pretrain_dev_receipt", "loss", "loss_receipt"}
    assert {entry["role"] for entry in entries if entry["seed"] == 42} == trained
    assert {entry["role"] for entry in entries if entry["seed"] == 7} == {*trained, "costs", "costs_receipt"}


def test_a_message_names_the_arms_of_a_job_and_none_of_another_seed():
    main = BASE["studies"]["main"]
    other = {"question": "Again?", "arms": {"again": {}}, "seeds": [7, 8]}
    of = Plan(load(BASE | {"recipes": {"main": {}}, "studies": {"main": main, "other": other}}))
    arms = Arms(of.runs)
    named = {(job.id.seed, f"{arms:{job.id.key}/{job.id.seed}}") for job in of.stage("rl")}
    assert named == {
        (42, "published of main"),
        (42, "shuffled of main"),
        (7, "published of main and 1 more"),
        (7, "shuffled of main"),
        (8, "again of other"),
    }


def test_a_job_the_config_does_not_ask_for_is_a_key_error():
    with pytest.raises(KeyError):
        plan().job("rl", "0" * 12, "42")
    job = next(iter(plan().jobs))
    assert plan().job(*job).id == Id(*job)


def test_seeds_that_share_a_start_share_its_jobs_and_those_of_other_studies():
    screen = {"question": "Which?", "arms": {"standard": {}, "cold": {"rl": {"temperature": 0.2}}}, "seeds": [1, 2], "start_seed": 42}
    shared = Plan(load(BASE | {"studies": BASE["studies"] | {"screen": screen | {"curve": False}}}))
    own = {run.seed: run.stages for run in shared.runs if run.study == "screen" and run.arm == "standard"}
    main = next(run.stages for run in shared.runs if run.study == "main" and run.arm == "published" and run.seed == 42)
    for stage in ("corpus", "pretrain", "evaluate/pretraining", "select", "evaluate/before"):
        assert own[1][stage] == own[2][stage] == main[stage]
    assert "evaluate/curve" not in own[1]
    assert shared.jobs[own[1]["rl"]].sources == {stage: main[stage] for stage in ("corpus", "pretrain", "select")}


def test_what_studies_and_arms_share_stands_first_under_the_arm_in_front():
    aside = {"question": "Which?", "arms": {"standard": {}}, "seeds": [1], "start_seed": 42}
    main = BASE["studies"]["main"] | {"arms": {"published": {}, "control": {"rl": {"shuffle_rewards": True}}}}
    shared = Plan(load(BASE | {"studies": {"aside": aside, "main": main}})).manifest()
    first = next(entry for entry in shared if entry["role"] == "pretrain_metrics" and entry["path"].endswith("seed-42/metrics.jsonl"))
    assert (first["study"], first["arm"], first["seed"]) == ("main", "published", 42)


def test_a_run_from_the_start_of_another_seed_is_another_job_than_one_from_its_own():
    def rl(start):
        of = plan(seeds=[7], start_seed=start)
        return of.stage("rl")[0].id

    assert len({rl(None), rl(42), rl(43)}) == 3
    assert rl(7) == rl(None)


def test_fewer_tasks_of_the_split_change_the_reported_evaluation_alone():
    assert different(plan(), plan(tasks_per_family=4)) == {"evaluate/before", "evaluate/after", "trace"}


def test_a_job_counts_the_mechanisms_of_its_model_alone():
    every = set(OPTIONAL_MODULES.values())
    assert all(util.find_spec(module) for module in every)
    arms = {"published": {}, "dense": {"model": {"ffn": "dense"}}}
    of = plan(arms=arms)
    unused = {(run.arm, stage): of.unused_modules(job) for run in of.runs for stage, job in run.stages.items()}
    for stage in {stage for _, stage in unused}:
        named = set() if stage == "corpus" else every
        assert unused["published", stage] == named
        assert unused["dense", stage] == named - {"glint.model.feedforward"}
