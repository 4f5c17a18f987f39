"""One update of the trainer against the float64 references of model and objective: loss, gradient, divergence, replay, step size."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glint.asking import Task
from glint.config.execution import ExecutionRecipe
from glint.config.model import ModelRecipe
from glint.config.rl import KLRecipe, ReplayRecipe, RLJob, RLRecipe
from glint.generate import NEVER_SAMPLED, Completion
from glint.model import checkpoint
from glint.tasks.tokenizer import EOS, decode, encode
from glint.train import objective
from glint.train.rloo import GroupTrainer
from tests.reference import hybrid, rloo
from tests.reference.adapter import decoder, in_reference_shape, production_name
from tests.reference.agreement import relative_error
from tests.train.tiny import CPU, write_corpus

MODEL = ModelRecipe(width=12, layers=4, heads=3, experts=3, top_k=2, expert_hidden=5, streams=2, window=3, stride=4, context=160)
TEMPERATURE = 0.5
TASK = Task(0, "increment", "f", "x", "def f(x):\n", "[]")
RESPONSES = [encode("ab\n", bos=False), [70, 71, 72, 73, EOS], [EOS], [99, 98, 97, 96, 95, 94, 93]]
REWARDS = [1.0, 0.0, -0.1, 0.0]
SCOPES = {
    "all": ("embedding", "final_norm", "layers"),
    "last_block": ("final_norm", "layers.3."),
    "last_block_and_head": ("embedding", "final_norm", "layers.3."),
}
LENGTHS: tuple[rloo.Length, ...] = ("token_mean", "sum", "batch_tokens")
BASELINES: tuple[rloo.Baseline, ...] = ("leave_one_out", "group_normalised", "group_mean", "none")


@cache
def random_weights() -> hybrid.Weights:
    return hybrid.random_weights(MODEL, torch.Generator().manual_seed(11))


@cache
def reference_log_probs(tied: str, temperature: str) -> tuple[hybrid.Weights, list[Tensor]]:
    """Return float64 leaves and the log-probabilities of each response's tokens as functions of them."""
    leaves = {name: weight.clone().requires_grad_() for name, weight in random_weights().items()}
    inputs = leaves | ({"embedding.weight": leaves["embedding.weight"].detach()} if tied == "head_only" else {})
    log_probs = []
    for response in RESPONSES:
        sample = rloo.Sample(encode(TASK.prompt), response)
        final_BTD, _ = hybrid.hidden(inputs, MODEL, torch.tensor([sample.prompt + response]))
        logits = final_BTD[0] @ leaves["embedding.weight"].T
        hot = temperature == "one"
        log_probs.append(rloo.response_log_probs(logits, sample, 1.0 if hot else TEMPERATURE, () if hot else NEVER_SAMPLED))
    return leaves, log_probs


def reference_gradients(loss: Tensor, leaves: hybrid.Weights, scope: str) -> hybrid.Weights:
    trained = {name: leaf for name, leaf in leaves.items() if name.startswith(SCOPES[scope])}
    grads = torch.autograd.grad(loss, list(trained.values()), retain_graph=True, materialize_grads=True)
    return dict(zip(trained, grads, strict=True))


@dataclass
class Desk:
    """Files from which a trainer of the random model starts."""

    start: Path
    examples: Path
    tokens: Path

    def trainer(self, execution: ExecutionRecipe = CPU, **changes: Any) -> GroupTrainer:
        """Return a trainer that does not clip, so that the gradient of an update stays to be read; `changes` are keys of its recipe."""
        recipe: dict[str, Any] = {
            "families": ("increment",),
            "groups": 1,
            "group_size": 4,
            "temperature": TEMPERATURE,
            "clip": 1e9,
            "lr": 0.01,
        } | changes
        return GroupTrainer(RLJob(rl=RLRecipe(**recipe), execution=execution, seed=1), self.start, self.examples, self.tokens)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("desk")
    checkpoint.save(decoder(random_weights(), MODEL), folder / "start")
    return Desk(folder / "start", *write_corpus(folder, pretrain_examples=4))


def completions() -> list[Completion]:
    return [Completion(response, "length") for response in RESPONSES]


def gradients(trainer: GroupTrainer) -> hybrid.Weights:
    """Return the gradients that the last update left behind, under the reference's names."""
    left = {name: parameter.grad for name, parameter in trainer.policy.named_parameters() if parameter.grad is not None}
    return {name: in_reference_shape(name, left) for name in hybrid.parameter_shapes(MODEL) if production_name(name)[0] in left}


def wrong(found: hybrid.Weights, known: hybrid.Weights) -> list[str]:
    """List the parameters whose gradient is off by more than 0.1 %, or is not 0 where it has to be."""
    assert found.keys() == known.keys()
    scale = max(float(gradient.norm()) for gradient in known.values())
    return [
        name
        for name in known
        if not (float((found[name].double() - known[name]).norm()) <= 1e-3 * float(known[name].norm()) + 1e-7 * scale)
    ]


def check_update(desk: Desk, scope: str, tied: str, temperature: str, length: rloo.Length, baseline: rloo.Baseline) -> None:
    recipe: dict[str, Any] = {
        "scope": scope,
        "tied_gradient": tied,
        "log_prob_temperature": temperature,
        "length": length,
        "baseline": baseline,
    }
    trainer = desk.trainer(**recipe)
    advantages = objective.advantages(torch.tensor(REWARDS), trainer.job.rl)
    done = trainer.update(TASK, completions(), advantages)
    leaves, log_probs = reference_log_probs(tied, temperature)
    ddof, epsilon = trainer.job.rl.std_ddof, trainer.job.rl.std_epsilon
    loss = rloo.policy_loss(log_probs, rloo.advantages(REWARDS, baseline, ddof, epsilon), length)
    assert done["loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert done["scores"] == pytest.approx([score.item() for score in rloo.scores(log_probs, length)], rel=1e-4)
    known = reference_gradients(loss, leaves, scope)
    assert wrong(gradients(trainer), known) == []
    assert done["grad_norm"] == pytest.approx(torch.cat([g.flatten() for g in known.values()]).norm().item(), rel=1e-3)


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("length", LENGTHS)
def test_loss_and_gradient_for_every_length_and_baseline(desk: Desk, length: rloo.Length, baseline: rloo.Baseline) -> None:
    check_update(desk, "last_block_and_head", "both", "one", length, baseline)


@pytest.mark.parametrize("temperature", ["one", "sampling"])
@pytest.mark.parametrize(
    ("scope", "tied"), [("all", "both"), ("last_block", "both"), ("last_block_and_head", "both"), ("last_block_and_head", "head_only")]
)
def test_loss_and_gradient_for_every_scope_path_and_temperature(desk: Desk, scope: str, tied: str, temperature: str) -> None:
    check_update(desk, scope, tied, temperature, "token_mean", "leave_one_out")


def test_the_second_path_of_the_tied_matrix_is_no_small_matter(desk: Desk) -> None:
    found = {}
    for tied in ("both", "head_only"):
        trainer = desk.trainer(tied_gradient=tied)
        trainer.update(TASK, completions(), torch.tensor(REWARDS))
        found[tied] = gradients(trainer)["embedding.weight"]
    assert relative_error(found["head_only"], found["both"]) > 0.1


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("ddof", [0, 1])
def test_advantages(baseline: rloo.Baseline, ddof: Any) -> None:
    for rewards in (REWARDS, [-0.1] + [0.0] * 15, [1.0] * 3 + [0.0] * 12 + [-0.1]):
        recipe = RLRecipe(baseline=baseline, std_ddof=ddof, std_epsilon=0.25)
        expected = rloo.advantages(rewards, baseline, ddof, 0.25)
        assert objective.advantages(torch.tensor(rewards), recipe).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("one", "others", "baseline", "ddof", "advantage", "rest"),
    [
        (-0.1, 0.0, "leave_one_out", 1, -0.1, 0.1 / 15),
        (-0.1, 0.0, "group_normalised", 1, -3.75, 0.25),
        (-0.1, 0.0, "group_normalised", 0, -(15**0.5), 15**-0.5),
        (1.0, 0.0, "leave_one_out", 1, 1.0, -1 / 15),
        (1.0, 0.0, "group_normalised", 1, 3.75, -0.25),
        (1.0, 0.0, "group_normalised", 0, 15**0.5, -(15**-0.5)),
        (1.0, 0.0, "group_mean", 1, 15 / 16, -1 / 16),
        (1.0, 0.0, "none", 1, 1.0, 0.0),
    ],
)
def test_advantages_computed_by_hand(one: float, others: float, baseline: Any, ddof: Any, advantage: float, rest: float) -> None:
    """One sample of 16 that differs by d: mean d/16, sample variance d^2/16 (so d/4 divides), population variance 15 d^2 / 16^2.

    RLOO keeps the ten to one between a success and an invalid text; GRPO makes them equal.
    """
    recipe = RLRecipe(baseline=baseline, std_ddof=ddof, std_epsilon=0.0)
    found = objective.advantages(torch.tensor([one] + [others] * 15), recipe).tolist()
    assert found == pytest.approx([advantage] + [rest] * 15, abs=1e-5)


def test_only_the_scope_moves_and_everything_in_it_does(desk: Desk) -> None:
    for scope, prefixes in SCOPES.items():
        trainer = desk.trainer(scope=scope)
        before = {name: parameter.detach().clone() for name, parameter in trainer.policy.named_parameters()}
        trainer.update(TASK, completions(), torch.tensor(REWARDS))
        moved = {name for name, parameter in trainer.policy.named_parameters() if not torch.equal(parameter, before[name])}
        inside = {production_name(name)[0] for name in hybrid.parameter_shapes(MODEL) if name.startswith(prefixes)}
        # The write logits of the last block have no influence: the end is the plain mean of the streams. Nor has what layer 0 reads.
        assert moved | {"blocks.3.write_logits", "blocks.0.read_logits"} >= inside
        assert moved <= inside


def test_divergence_and_its_gradient_are_zero_at_the_start(desk: Desk) -> None:
    trainer = desk.trainer(kl=KLRecipe(weight=1.0))
    done = trainer.update(TASK, completions(), torch.zeros(4))
    assert done["kl"] == 0
    assert all(float(gradient.abs().max()) == 0 for gradient in gradients(trainer).values())


@pytest.mark.parametrize("temperature", ["one", "sampling"])
def test_divergence_and_its_gradient_after_a_step(desk: Desk, temperature: str) -> None:
    trainer = desk.trainer(kl=KLRecipe(weight=0.7), log_prob_temperature=temperature)
    trainer.update(TASK, completions(), torch.tensor(REWARDS))
    own: dict[str, Tensor] = dict(trainer.policy.named_parameters())
    leaves, start_log_probs = reference_log_probs("both", temperature)
    with torch.no_grad():
        start = [log_probs.clone() for log_probs in start_log_probs]
        moved = {name: in_reference_shape(name, own).double().contiguous() for name in leaves}
    for leaf in moved.values():
        leaf.requires_grad_()
    now = []
    for response in RESPONSES:
        sample = rloo.Sample(encode(TASK.prompt), response)
        logits = hybrid.forward(moved, MODEL, torch.tensor([sample.prompt + response]))[0][0]
        hot = temperature == "one"
        now.append(rloo.response_log_probs(logits, sample, 1.0 if hot else TEMPERATURE, () if hot else NEVER_SAMPLED))
    divergence = rloo.kl_k3(now, start)
    done = trainer.update(TASK, completions(), torch.zeros(4))
    assert divergence.item() > 1e-3
    assert done["kl"] == pytest.approx(divergence.item(), rel=1e-3)
    assert done["loss"] == 0
    assert wrong(gradients(trainer), reference_gradients(0.7 * divergence, moved, "last_block_and_head")) == []


def test_divergence_pulls_the_policy_back(desk: Desk) -> None:
    trainer = desk.trainer(kl=KLRecipe(weight=1.0), lr=0.002)
    trainer.update(TASK, completions(), torch.tensor(REWARDS))
    passed = [trainer.update(TASK, completions(), torch.zeros(4))["kl"] for _ in range(30)]
    assert passed[-1] < 0.2 * max(passed)


def replayed(desk: Desk, **changes: Any) -> GroupTrainer:
    return desk.trainer(replay=ReplayRecipe(weight=0.3, rows=2), **changes)


def test_only_rows_of_other_families_are_replayed(desk: Desk) -> None:
    texts = [decode(row).decode() for row in replayed(desk).replay]
    assert len(texts) == 2
    assert all("def double_" in text for text in texts)
    named = desk.trainer(replay=ReplayRecipe(weight=0.3, rows=2, families=("increment",)))
    assert all("def increment_" in decode(row).decode() for row in named.replay)


def test_more_replay_rows_than_there_are_is_one_sentence(desk: Desk) -> None:
    with pytest.raises(ValueError, match=r"rl\.replay\.rows 99999 exceeds the \d+ pretraining rows"):
        desk.trainer(replay=ReplayRecipe(weight=0.3, rows=99999))


def test_replay_adds_the_cross_entropy_of_its_rows(desk: Desk) -> None:
    trainer = replayed(desk)
    done = trainer.update(TASK, completions(), torch.zeros(4))
    leaves = {name: weight.clone().requires_grad_() for name, weight in random_weights().items()}
    surprise = []
    for row in (row.tolist() for row in trainer.replay):
        logits = hybrid.forward(leaves, MODEL, torch.tensor([row[:-1]]))[0]
        surprise.append(hybrid.cross_entropy(logits, torch.tensor([row[1:]])) * (len(row) - 1))
    loss = sum(surprise) / sum(len(row) - 1 for row in trainer.replay)
    assert isinstance(loss, Tensor)
    assert wrong(gradients(trainer), reference_gradients(0.3 * loss, leaves, "last_block_and_head")) == []
    assert done["loss"] == 0


def test_the_head_has_a_learning_rate_of_its_own(desk: Desk) -> None:
    moves = []
    for factor in (1.0, 0.1):
        trainer = desk.trainer(head_lr_factor=factor)
        before = {name: parameter.detach().clone() for name, parameter in trainer.policy.trainable().items()}
        trainer.update(TASK, completions(), torch.tensor(REWARDS))
        moves.append({name: parameter.detach() - before[name] for name, parameter in trainer.policy.trainable().items()})
    plain, slow = moves
    assert relative_error(slow["embedding"] * 10, plain["embedding"]) < 1e-4
    assert all(torch.equal(slow[name], plain[name]) for name in plain if name != "embedding")


def test_clipping_scales_the_whole_gradient(desk: Desk) -> None:
    free, clipped = desk.trainer(), desk.trainer(clip=0.01)
    norms = [trainer.update(TASK, completions(), torch.tensor(REWARDS))["grad_norm"] for trainer in (free, clipped)]
    assert norms[0] == norms[1] > 0.01
    whole, cut = gradients(free), gradients(clipped)
    assert all(torch.allclose(cut[name], whole[name] * 0.01 / norms[0], atol=1e-7) for name in whole)
