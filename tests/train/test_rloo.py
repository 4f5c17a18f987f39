"""RL runs: equal bits for equal seeds, groups without spread, the shuffled control, what a checkpoint holds, faults in one sentence."""

import itertools
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats

from glint.asking import read_tasks
from glint.config.rl import ReplayRecipe, RewardRecipe, RLRecipe
from glint.files import read_json, sha256
from glint.generate import Completion
from glint.model import checkpoint
from glint.train import rloo
from glint.train.rloo import GroupTrainer, ordered_prompts, reward_of
from glint.verify import Verdict
from tests.train.tiny import CPU, FAMILIES, School, ScriptedVerifier, metrics, rl_job, rollouts, select, weights

SPREAD = ("pfipfi", "iiiiif", "pppppf", "ffffip")


def scripted(monkeypatch: pytest.MonkeyPatch, *groups: str) -> None:
    """Let verdicts come from `groups` instead of the sandbox."""
    monkeypatch.setattr(rloo, "Verifier", lambda: ScriptedVerifier(*groups))


def test_one_seed_gives_the_same_bits_twice_and_another_seed_others(school: School, tmp_path: Path) -> None:
    runs = []
    for name, seed in (("one", 2), ("two", 2), ("other", 3)):
        out = school.train(rl_job(seed, checkpoint_every=2), tmp_path / name)
        runs.append((weights(out), metrics(out), (out / "rollouts.parquet").read_bytes()))
    assert runs[0] == runs[1]
    for kind in range(3):
        assert runs[0][kind] != runs[2][kind]
    assert any(record["updated"] for record in runs[0][1])
    assert sorted(runs[0][0]) == [f"groups-00{count}/{name}" for count in (2, 4) for name in ("config.json", "model.safetensors")]


def test_learning_raises_the_reward(school: School, tmp_path: Path) -> None:
    """The same tasks and the same uniform numbers with and without learning, a family at a time, over seeds: one may go either way."""
    gains = []
    for family, seed in itertools.product(FAMILIES, range(4)):
        means = []
        for lr in (3e-4, 1e-12):
            job = rl_job(seed, families=(family,), groups=6, group_size=16, lr=lr)
            records = metrics(school.train(job, tmp_path / f"{family}-{seed}-{lr}"))
            means.append(sum(record["reward_mean"] for record in records[1:]) / 5)
        gains.append(means[0] - means[1])
    assert stats.ttest_1samp(gains, 0, alternative="greater").pvalue < 0.01, gains


@pytest.mark.parametrize("zero_spread", ["skip", "update"])
def test_groups_without_spread(school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zero_spread: str) -> None:
    scripted(monkeypatch, "pppppp", "iiiiii", "ffffff", "pppppp")
    out = school.train(rl_job(zero_spread=zero_spread), tmp_path)
    updated = zero_spread == "update"
    for record in metrics(out):
        assert record["spread"] == 0
        assert record["updated"] is updated
        assert (record["loss"] is None) == (record["kl"] is None) == (record["grad_norm"] is None) == (not updated)
    table = rollouts(out)
    assert len(table) == 24
    assert (table["advantage"] == 0).all()
    assert table["log_prob"].isna().all() == (not updated)
    before, after = load_file(school.start / "model.safetensors"), load_file(out / "groups-004/model.safetensors")
    # Advantages of zero have no gradient, and AdamW without decay does not move without one.
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())


def test_the_record_of_a_group(school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, *SPREAD)
    records = metrics(school.train(rl_job(), tmp_path))
    assert [record["group"] for record in records] == [0, 1, 2, 3]
    assert [record["exact"] for record in records] == [2, 0, 5, 1]
    assert [record["invalid"] for record in records] == [2, 5, 0, 1]
    assert [record["spread"] for record in records] == pytest.approx([1.1, 0.1, 1.0, 1.1])
    assert [record["reward_mean"] for record in records] == pytest.approx([1.8 / 6, -0.5 / 6, 5 / 6, 0.9 / 6])
    assert all(record["updated"] and record["grad_norm"] > 0 and record["kl"] == 0 for record in records)


def by_group(table: pd.DataFrame, column: str) -> list[list[float]]:
    return [group[column].tolist() for _, group in table.groupby("group")]


def test_the_control_permutes_rewards_within_the_group_only(school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, *SPREAD)
    out = school.train(rl_job(shuffle_rewards=True), tmp_path / "control")
    table = rollouts(out)
    earned, credited = by_group(table, "reward"), by_group(table, "credited_reward")
    assert [sorted(group) for group in credited] == [sorted(group) for group in earned]
    assert credited != earned
    for rewards, advantages in zip(credited, by_group(table, "advantage"), strict=True):
        assert advantages == pytest.approx([reward - (sum(rewards) - reward) / 5 for reward in rewards], abs=1e-6)
    scripted(monkeypatch, *SPREAD)
    honest = school.train(rl_job(), tmp_path / "honest")
    assert by_group(rollouts(honest), "credited_reward") == by_group(rollouts(honest), "reward") == earned
    assert [record["reward_mean"] for record in metrics(out)] == [record["reward_mean"] for record in metrics(honest)]


def test_the_control_draws_another_order_for_each_group(school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, *["pffffffffffi"] * 8)
    credited = by_group(rollouts(school.train(rl_job(groups=8, group_size=12, shuffle_rewards=True), tmp_path)), "credited_reward")
    assert len({tuple(group) for group in credited}) > 5


def test_a_checkpoint_holds_the_trained_tensors_and_the_hash_of_its_base(school: School, tmp_path: Path) -> None:
    out = school.train(rl_job(), tmp_path)
    job = rl_job()
    start = GroupTrainer(job, school.start, school.examples, school.tokens).policy
    kept = load_file(out / "groups-004/model.safetensors")
    assert kept.keys() == start.trainable().keys()
    assert read_json(out / "groups-004/config.json")["base_sha256"] == sha256(school.start / "model.safetensors")
    after = checkpoint.load([school.start, out / "groups-004"], torch.device("cpu"), torch.float32)
    for name, parameter in after.named_parameters():
        assert torch.equal(parameter, kept[name] if name in kept else dict(start.named_parameters())[name])
    assert not torch.equal(after.embedding, start.embedding)
    receipt = read_json(out / "receipt.json")
    assert receipt["trainable_parameters"] == sum(tensor.numel() for tensor in kept.values())


def test_prompts_come_in_one_order_shuffled_by_the_seed(school: School) -> None:
    tasks = read_tasks(school.examples, "rl", FAMILIES)
    assert len(tasks) == 12
    orders = [[task.identity for task in ordered_prompts(tasks, 12, seed)] for seed in (2, 2, 3)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(task.identity for task in tasks)
    with pytest.raises(ValueError, match=r"^rl\.groups 13 exceeds the 12 RL tasks of increment, double$"):
        ordered_prompts(tasks, 13, 2)


def test_each_prompt_is_asked_once_and_only_those_of_the_split(school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, *["ff"] * 6)
    table = rollouts(school.train(rl_job(groups=6, group_size=2, families=("double",)), tmp_path))
    examples = pd.read_parquet(school.examples)
    allowed = examples[(examples["split"] == "rl") & (examples["family"] == "double")]
    assert sorted(table.groupby("group")["identity"].first()) == sorted(allowed["identity"])


@pytest.mark.parametrize(
    ("kind", "verdict", "cases", "reward"),
    [
        ("binary", "passed", 4, 2.0),
        ("binary", "failed", 3, 0.5),
        ("binary", "invalid", 0, -1.0),
        ("fraction", "passed", 4, 2.0),
        ("fraction", "failed", 3, 1.625),
        ("fraction", "failed", 0, 0.5),
        ("fraction", "invalid", 0, -1.0),
    ],
)
def test_rewards(kind: Any, verdict: Any, cases: int, reward: float) -> None:
    recipe = RLRecipe(reward=RewardRecipe(kind=kind, passed=2.0, failed=0.5, invalid=-1.0))
    assert reward_of(Verdict(verdict, "", cases, 4, 0.0), recipe) == reward


def test_replay_goes_on_in_each_update(school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    for name, replay in (("without", ReplayRecipe()), ("with", ReplayRecipe(weight=1.0, rows=4))):
        scripted(monkeypatch, *SPREAD)
        out = school.train(rl_job(groups=4, families=("increment",), replay=replay), tmp_path / name)
        ends.append(load_file(out / "groups-004/model.safetensors"))
    assert any(not torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_gradient_that_is_not_finite_stops_the_run_in_one_sentence(school: School) -> None:
    trainer = GroupTrainer(rl_job(group_size=2), school.start, school.examples, school.tokens)
    before = {name: parameter.clone() for name, parameter in trainer.policy.trainable().items()}
    completions = [Completion([70, 71], "length"), Completion([80], "length")]
    with pytest.raises(ValueError, match=r"^group 0 of seed 2: the gradient norm is nan; lower rl\.lr$"):
        trainer.update(trainer.tasks[0], completions, torch.tensor([float("nan"), 1.0]))
    assert all(torch.equal(parameter, before[name]) for name, parameter in trainer.policy.trainable().items())


def test_a_lost_start_is_one_sentence(school: School, tmp_path: Path) -> None:
    selection = select(tmp_path, "step-0777")
    with pytest.raises(ValueError, match=r"^no checkpoint in .*/step-0777: config\.json is missing$"):
        rloo.train(rl_job(), school.pretrained, selection, school.examples, school.tokens, tmp_path / "out", tmp_path / "state")
    assert not (tmp_path / "out").exists()


def test_damaged_examples_are_one_sentence(school: School, tmp_path: Path) -> None:
    examples = tmp_path / "examples.parquet"
    shutil.copy(school.examples, examples)
    examples.write_bytes(examples.read_bytes()[:-50])
    with pytest.raises(ValueError, match=rf"^{re.escape(str(examples))} is not a whole Parquet file"):
        rloo.train(rl_job(), school.pretrained, school.selection, examples, school.tokens, tmp_path / "out", tmp_path / "state")


def test_samples_of_a_run_are_hot_where_the_recipe_is_hot(school: School, tmp_path: Path) -> None:
    variety = []
    for temperature in (0.05, 2.0):
        trainer = GroupTrainer(rl_job(group_size=12, temperature=temperature), school.start, school.examples, school.tokens)
        variety.append(len({tuple(completion.ids) for completion in trainer.sample(trainer.tasks[0])}))
    assert variety[0] < variety[1] == 12
    assert trainer.job.execution == CPU
