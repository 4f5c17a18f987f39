"""Models other than the hybrid through pretraining, RL (RLOO and GRPO) and evaluation."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from glint.asking import Task
from glint.config.evaluation import EvaluateJob, EvaluationRecipe
from glint.config.model import PRESETS, ModelRecipe
from glint.evaluate import evaluate
from glint.generate import draw_uniforms, generate
from glint.model import checkpoint
from glint.randomness import torch_generator
from glint.tasks.tokenizer import encode
from glint.train import rloo
from glint.train.objective import advantages
from glint.train.pretrain import pretrain, step_name
from glint.train.rloo import GroupTrainer
from tests.train.tiny import CPU, School, ScriptedVerifier, metrics, pretrain_job, rl_job, rollouts, select, write_corpus

STEPS = 60
SIZES = {"width": 32, "heads": 2, "context": 160, "init_std": 0.1}
MODELS = {
    "dense": PRESETS["dense"].model_copy(update=SIZES | {"layers": 2, "ffn_hidden": 64}),
    "faithful": PRESETS["faithful"].model_copy(
        update=SIZES | {"layers": 4, "experts": 3, "expert_hidden": 24, "ffn_hidden": 48, "query_rank": 16, "kv_rank": 12, "index_size": 8}
    ),
}


def recipe_of(school: School) -> ModelRecipe:
    """Return the model that a school has pretrained."""
    return checkpoint.load([school.pretrained / step_name(STEPS)], torch.device("cpu"), torch.float32).recipe


@pytest.fixture(scope="module", params=MODELS)
def school(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> School:
    """Pretrain a small model."""
    folder = tmp_path_factory.mktemp(request.param)
    examples, tokens = write_corpus(folder)
    job = pretrain_job(steps=STEPS).model_copy(update={"model": MODELS[request.param]})
    pretrain(job, tokens, folder / "pretrained", folder / "state")
    return School(examples, tokens, folder / "pretrained", select(folder, step_name(STEPS)))


def test_pretraining_learns_and_balances_what_is_routed(school: School) -> None:
    records, routes = metrics(school.pretrained), recipe_of(school).ffn == "moe"
    assert records[0]["loss"] > 5 > 2 > records[-1]["loss"]
    assert all((record["balance"] > 0) == routes for record in records)
    assert all((record["divergence"] > 0) == routes for record in records)


@pytest.mark.parametrize("baseline", ["leave_one_out", "group_normalised"])
def test_a_group_of_rl(school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, baseline: str) -> None:
    monkeypatch.setattr(rloo, "Verifier", lambda: ScriptedVerifier("pfifff", "ffffff", "pppppf"))
    job = rl_job(groups=3, baseline=baseline, std_epsilon=0.0)
    start = school.pretrained / step_name(STEPS)
    rloo.train(job, school.pretrained, school.selection, school.examples, school.tokens, tmp_path / "out", tmp_path / "state")
    table, records = rollouts(tmp_path / "out"), metrics(tmp_path / "out")
    assert [record["updated"] for record in records] == [True, False, True]
    for _, group in table.groupby("group"):
        expected = advantages(torch.tensor(group["reward"].to_numpy(), dtype=torch.float32), job.rl)
        if group["reward"].nunique() > 1:
            assert group["advantage"].tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    before = checkpoint.load([start], torch.device("cpu"), torch.float32)
    after = checkpoint.load([start, tmp_path / "out/groups-003"], torch.device("cpu"), torch.float32)
    moved = {name for name, parameter in after.named_parameters() if not torch.equal(parameter, before.get_parameter(name))}
    last = f"blocks.{after.recipe.layers - 1}."
    own = {name for name, _ in after.named_parameters() if name.startswith(last) and "index" not in name and "slot" not in name}
    assert moved == {after.head_name, "final_norm", *own}  # an indexer learns in pretraining alone


def test_what_rl_scores_is_what_was_sampled(school: School) -> None:
    """The packed forward with the prompt read once gives the probabilities by which decoding has chosen."""
    trainer = GroupTrainer(rl_job(group_size=3), school.pretrained / step_name(STEPS), school.examples, school.tokens)
    task: Task = trainer.tasks[0]
    uniforms = draw_uniforms(3, 20, torch_generator(1, "models"))
    (group,) = generate(trainer.policy, [encode(task.prompt)], [uniforms], 20)
    with torch.no_grad():
        found = trainer.log_probs(trainer.policy, task, [completion.ids for completion in group]).split([len(one.ids) for one in group])
    for completion, log_probs in zip(group, found, strict=True):
        logits, cache = trainer.policy.prefill([encode(task.prompt)])
        for token, log_prob in zip(completion.ids, log_probs, strict=True):
            assert torch.log_softmax(logits, -1)[0, token].item() == pytest.approx(log_prob.item(), abs=1e-4)
            logits = trainer.policy.step(torch.tensor([token]), cache)


def test_evaluation_asks_it(school: School, tmp_path: Path) -> None:
    plan = EvaluationRecipe(samples=2, k=(1, 2), max_new_tokens=12, property_inputs=100)
    job = EvaluateJob(evaluation=plan, execution=CPU, split="confirm", sampled=True, families=("increment",), seed=3)
    evaluate(job, {"last": (school.pretrained / step_name(STEPS),)}, school.examples, tmp_path / "completions.parquet")
    table = pd.read_parquet(tmp_path / "completions.parquet")
    assert table.groupby("mode").size().to_dict() == {"greedy": 2 * 2, "sampled": 2 * 2 * 2}


def test_resuming_ends_with_the_same_bits(school: School, tmp_path: Path) -> None:
    job = pretrain_job(steps=4, checkpoints=(2, 4)).model_copy(update={"model": recipe_of(school)})
    for name, stop in (("whole", 4), ("parts", 2)):
        pretrain(job.model_copy(update={"steps": stop}), school.tokens, tmp_path / name, tmp_path / f"{name}-state", save_every=0)
    pretrain(job, school.tokens, tmp_path / "parts", tmp_path / "parts-state", save_every=0)
    whole, parts = ((tmp_path / name / step_name(4) / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts
