"""What a job will cost: every stage of every config is covered, more work costs more, and a machine's rates count by their kind of work."""

import pytest
import yaml

from glint.config.load import load
from glint.config.model import PRESETS, ModelRecipe
from glint.model.decoder import Decoder, count_parameters
from pipeline.estimate import REFERENCE, STAGES, estimate
from pipeline.plan import Plan
from pipeline.work import decoding_seconds, size_of
from tests.pipeline.checkout import ROOT

CONFIGS = [path for path in sorted((ROOT / "config").glob("*.yaml")) if path.name != "claims.yaml"]
SMALL = {"width": 48, "layers": 4, "heads": 3, "expert_hidden": 96}


def plan(**recipe):
    """Return the plan of one rl study with this recipe."""
    study = {"question": "Does it help?", "arms": {"published": {}}, "seeds": [42]}
    return Plan(load({"run": "trial", "recipes": {"main": recipe}, "studies": {"main": study}}))


def cost(stage, **recipe):
    """Return the estimate of the one job of `stage`."""
    (job,) = plan(**recipe).stage(stage)
    return estimate(job)


def test_every_stage_of_every_config_has_an_estimate():
    plans = [Plan(load(yaml.safe_load(path.read_text(encoding="utf-8")))) for path in CONFIGS]
    jobs = [job for one in plans for job in one.jobs.values()]
    assert {job.id.stage for job in jobs} == STAGES.keys() | {"corpus", "select"}
    assert all(cpu_seconds > 0 and 100 < mem_mb < 20000 for cpu_seconds, mem_mb in map(estimate, jobs))


@pytest.mark.parametrize(
    ("stage", "less", "more"),
    [
        ("corpus", {"corpus": {"pretrain_examples": 12800}}, {"corpus": {"pretrain_examples": 25600}}),
        ("pretrain", {"pretraining": {"batch": 8}}, {"pretraining": {"batch": 16}}),
        ("pretrain", {"pretraining": {"sequence": 32}}, {"pretraining": {"sequence": 64}}),
        ("pretrain", {"model": SMALL}, {"model": SMALL | {"layers": 8}}),
        ("rl", {"rl": {"groups": 8}}, {"rl": {"groups": 16}}),
        ("rl", {"rl": {"group_size": 8}}, {"rl": {"group_size": 16}}),
        ("evaluate/pretraining", {"corpus": {"dev_tasks_per_family": 2}}, {"corpus": {"dev_tasks_per_family": 4}}),
        ("evaluate/after", {"evaluation": {"samples": 8}}, {"evaluation": {"samples": 16}}),
        ("evaluate/after", {"evaluation": {"max_new_tokens": 24}}, {"evaluation": {"max_new_tokens": 48}}),
        ("trace", {"model": SMALL}, {"model": SMALL | {"residual": "mhc"}}),
    ],
)
def test_more_work_costs_more(stage, less, more):
    assert cost(stage, **more).cpu_seconds > cost(stage, **less).cpu_seconds
    assert cost(stage, **more).mem_mb >= cost(stage, **less).mem_mb


def test_training_costs_by_the_step():
    job = plan().stage("pretrain")[0]
    longer = job.slice.model_copy(update={"steps": job.slice.steps + 100})
    added = estimate(type(job)(job.id, longer, job.sources, job.upstream)).cpu_seconds - estimate(job).cpu_seconds
    assert added == pytest.approx(100 * REFERENCE.step, rel=0.05)


def test_a_rate_counts_where_its_work_is_done():
    jobs = {stage: plan().stage(stage)[0] for stage in ("pretrain", "rl", "select")}
    slow = {name: getattr(REFERENCE, name) * 2 for name in ("step", "small_step", "decode", "program", "start")}
    ratio = {
        (stage, name): estimate(job, REFERENCE._replace(**{name: value})).cpu_seconds / estimate(job).cpu_seconds
        for stage, job in jobs.items()
        for name, value in slow.items()
    }
    assert ratio["pretrain", "step"] > 1.9
    assert ratio["pretrain", "decode"] == ratio["pretrain", "program"] == 1
    assert ratio["rl", "decode"] > ratio["rl", "program"] > 1
    assert ratio["select", "start"] == 2
    assert estimate(jobs["rl"], REFERENCE._replace(**slow)).cpu_seconds == pytest.approx(2 * estimate(jobs["rl"]).cpu_seconds)


@pytest.mark.parametrize("model", [model.model_copy(update={"layers": 4}) for model in PRESETS.values()])
def test_sizes_are_those_of_the_model(model):
    decoder = Decoder(model)
    assert size_of(model).parameters == pytest.approx(count_parameters(decoder), rel=0.01)
    assert size_of(model).active == pytest.approx(count_parameters(decoder, active=True), rel=0.03)


def test_a_compiled_step_reads_every_expert():
    few, many = (size_of(ModelRecipe(experts=experts)) for experts in (4, 8))
    assert few.active == pytest.approx(many.active, rel=0.01)
    assert many.decoded == pytest.approx(many.parameters, rel=0.01)
    assert decoding_seconds(many, 1, 16, "bf16") > decoding_seconds(few, 1, 16, "bf16")
