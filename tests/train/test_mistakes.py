"""Mistakes seen in public RL trainers, each as a test that fails where it is made."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from glint.asking import read_tasks
from glint.config.execution import ExecutionRecipe
from glint.config.rl import RLJob, RLRecipe
from glint.generate import NEVER_SAMPLED, Completion, choose, draw_uniforms
from glint.tasks.tokenizer import EOS, NEWLINE, encode
from glint.train import objective, rloo
from glint.train.rloo import GroupTrainer
from glint.verify import Verifier, VerifierError
from tests.train.tiny import CPU, School, ScriptedVerifier, metrics, rl_job, rollouts

BF16 = ExecutionRecipe(device="cpu", precision="bf16")


def trainer(school: School, seed: int = 2, execution: ExecutionRecipe = CPU, **changes: Any) -> GroupTrainer:
    return GroupTrainer(rl_job(seed, execution, **changes), school.start, school.examples, school.tokens)


@torch.no_grad()
def log_probs(by: GroupTrainer, responses: list[list[int]]) -> list[Tensor]:
    """Return the trainer's own token log-probabilities of each response to its first prompt."""
    packed = by.log_probs(by.policy, by.tasks[0], responses)
    return list(packed.split([len(response) for response in responses]))


@torch.no_grad()
def decoded_log_probs(by: GroupTrainer, response: list[int], temperature: float, masked: tuple[int, ...]) -> list[float]:
    """Return what the decoder, token by token as in sampling, gives the response."""
    logits, cache = by.policy.prefill([encode(by.tasks[0].prompt)])
    found = []
    for token in response:
        logits[:, list(masked)] = float("-inf")
        found.append(torch.log_softmax(logits[0] / temperature, -1)[token].item())
        logits = by.policy.step(torch.tensor([token]), cache)
    return found


RESPONSES = [encode("    return x + 1\n", bos=False), [EOS], encode("  x", bos=False)]


@pytest.mark.parametrize("last", [EOS, NEWLINE])
def test_the_token_that_ends_a_sample_is_trained(school: School, last: int) -> None:
    by = trainer(school, lr=1e-4)
    ended, other = [70, last], [70, 71]
    before = log_probs(by, [ended])[0]
    by.update(by.tasks[0], [Completion(ended, "eos"), Completion(other, "length")], torch.tensor([1.0, -1.0]))
    after = log_probs(by, [ended])[0]
    assert len(after) == 2
    # The first token is the same in both samples: their gradients cancel there, and only the end can move.
    assert after[1] > before[1] + 1e-3
    assert abs(after[0] - before[0]) < abs(after[1] - before[1])


def test_sampling_keeps_the_token_that_ended_a_sample(school: School) -> None:
    by = trainer(school, group_size=24)
    parsed = [completion.ids for completion in by.sample(by.tasks[0]) if completion.ended == "parses"]
    until_eos = [c.ids for c in trainer(school, group_size=24, stop="eos").sample(by.tasks[0]) if c.ended == "eos"]
    assert len(parsed) > 2
    assert all(ids[-1] == NEWLINE for ids in parsed)
    assert len(until_eos) > 2
    assert all(ids.count(EOS) == 1 and ids[-1] == EOS for ids in until_eos)


@pytest.mark.parametrize(("execution", "tolerance"), [(CPU, 1e-5), (BF16, 0.1)])
def test_padding_is_never_scored(school: School, execution: ExecutionRecipe, tolerance: float) -> None:
    by = trainer(school, execution=execution)
    together = log_probs(by, RESPONSES)
    assert [len(sample) for sample in together] == [len(response) for response in RESPONSES]
    for sample, response in zip(together, RESPONSES, strict=True):
        assert (sample - log_probs(by, [response])[0]).abs().max() < tolerance
    # In bf16 rows are filled up to a multiple of 32 tokens; the reference here has no such rows.
    exact = log_probs(trainer(school), RESPONSES)
    assert max((sample - other).abs().max() for sample, other in zip(together, exact, strict=True)) < tolerance


def test_padding_gets_no_gradient(school: School) -> None:
    """A group of one sample pushes as hard alone as beside a long sample without advantage, up to the mean over the group."""
    short, long = Completion([70, EOS], "eos"), Completion([80] * 20, "length")
    pushes = []
    for group, advantages in (([short], [1.0]), ([short, long], [2.0, 0.0])):
        by = trainer(school, clip=1e9)
        by.update(by.tasks[0], group, torch.tensor(advantages))
        pushes.append({name: parameter.grad for name, parameter in by.policy.trainable().items()})
    largest = max(float(gradient.abs().max()) for gradient in pushes[0].values() if gradient is not None)
    for name, alone in pushes[0].items():
        beside = pushes[1][name]
        assert alone is not None
        assert beside is not None
        assert torch.allclose(alone, beside, atol=1e-5 * largest), name


@pytest.mark.parametrize("setting", ["one", "sampling"])
def test_log_probabilities_are_scored_at_the_temperature_that_the_recipe_says(school: School, setting: str) -> None:
    by = trainer(school, temperature=0.35, log_prob_temperature=setting)
    temperature, masked = (1.0, ()) if setting == "one" else (0.35, NEVER_SAMPLED)
    for sample, response in zip(log_probs(by, RESPONSES), RESPONSES, strict=True):
        assert sample.tolist() == pytest.approx(decoded_log_probs(by, response, temperature, masked), abs=1e-4)


def test_sampling_temperature_scores_exactly_the_distribution_that_was_sampled_from() -> None:
    recipe = RLRecipe(temperature=0.35, log_prob_temperature="sampling")
    logits = torch.randn(1, 20, generator=torch.Generator().manual_seed(1)) * 2
    everything = torch.arange(20)
    shares = objective.token_log_probs(logits.expand(20, -1), everything, recipe).double().exp()
    assert shares[list(NEVER_SAMPLED)].tolist() == [0.0] * 3
    assert shares.sum().item() == pytest.approx(1)
    for token in (v for v in range(20) if v not in NEVER_SAMPLED and shares[v] > 1e-4):
        start = float(shares[:token].sum())
        inside = torch.tensor([start + 1e-6, start + float(shares[token]) - 1e-6], dtype=torch.float64)
        assert choose(logits.expand(2, -1), 0.35, inside).tolist() == [token] * 2
    published = objective.token_log_probs(logits.expand(20, -1), everything, RLRecipe(temperature=0.35)).exp()
    assert published.tolist() == pytest.approx(torch.softmax(logits[0], -1).tolist())


def test_a_token_is_scored_by_the_position_before_it(school: School) -> None:
    by = trainer(school)
    response = [70, 71, 72, 73]
    kept = log_probs(by, [response])[0]
    changed = log_probs(by, [[70, 71, 200, 73]])[0]
    assert torch.equal(kept[:2], changed[:2])
    assert abs(kept[2] - changed[2]) > 1e-3
    assert abs(kept[3] - changed[3]) > 1e-6


@pytest.mark.parametrize("rule", ["token_mean", "sum", "batch_tokens"])
def test_denominators_count_sampled_tokens_alone(school: School, rule: str) -> None:
    by = trainer(school, length=rule)
    counts = [1, 3, 24, 7]
    completions = [Completion([70 + sample] * count, "length") for sample, count in enumerate(counts)]
    sums = [float(sample.sum()) for sample in log_probs(by, [completion.ids for completion in completions])]
    choices: dict[str, list[float]] = {"token_mean": [*counts], "sum": [1] * 4, "batch_tokens": [sum(counts) / 4] * 4}
    done = by.update(by.tasks[0], completions, torch.zeros(4))
    assert done["scores"] == pytest.approx([total / divisor for total, divisor in zip(sums, choices[rule], strict=True)], rel=1e-4)


def test_a_finished_row_that_stays_in_the_batch_gains_no_tokens(school: School) -> None:
    by = trainer(school, group_size=16)
    task = by.tasks[0]
    for completion in by.sample(task):
        whole = [task.is_complete(completion.ids[:length]) for length in range(1, len(completion.ids) + 1)]
        assert whole[:-1] == [False] * (len(whole) - 1)
        assert whole[-1] == (completion.ended == "parses")


def test_every_row_of_a_group_is_its_own(school: School, tmp_path: Path) -> None:
    """Reward, advantage and log-probability of each rollout are worked out anew from its own text and its own group."""
    out = school.train(rl_job(groups=5, group_size=6), tmp_path)
    table = rollouts(out)
    tasks = {task.identity: task for task in read_tasks(school.examples, "rl", ("increment", "double"))}
    worth = {"passed": 1.0, "failed": 0.0, "invalid": -0.1}
    assert table.groupby("group")["sample"].apply(list).tolist() == [list(range(6))] * 5
    assert table.groupby("group")["identity"].nunique().tolist() == [1] * 5
    with Verifier() as verifier:
        for _, group in table.groupby("group"):
            task = tasks[group["identity"].iloc[0]]
            assert set(group["prompt_index"]) == {task.index}
            judged = verifier.judge([task.candidate(encode(text, bos=False)) for text in group["completion"]])
            assert [verdict.verdict for verdict in judged] == group["verdict"].tolist()
            assert group["reward"].tolist() == [worth[verdict] for verdict in group["verdict"]]
            rewards = group["reward"].tolist()
            expected = [reward - (sum(rewards) - reward) / 5 for reward in rewards]
            assert group["advantage"].tolist() == pytest.approx(expected, abs=1e-6)
    first = table[table["group"] == 0]
    by = trainer(school, groups=5)
    sampled = [completion.ids for completion in by.sample(by.tasks[0])]
    assert first["tokens"].tolist() == [len(ids) for ids in sampled]
    assert first["log_prob"].tolist() == pytest.approx([float(sample.mean()) for sample in log_probs(by, sampled)], abs=1e-5)


def test_a_group_without_spread_keeps_its_place(school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rloo, "Verifier", lambda: ScriptedVerifier("pfpfpf", "iiiiii", "ffffff", "fffffp"))
    out = school.train(rl_job(), tmp_path)
    table = rollouts(out)
    letters = {"passed": "p", "failed": "f", "invalid": "i"}
    assert table.groupby("group")["verdict"].apply(lambda own: "".join(letters[verdict] for verdict in own)).tolist() == [
        "pfpfpf",
        "iiiiii",
        "ffffff",
        "fffffp",
    ]
    assert [record["updated"] for record in metrics(out)] == [True, False, False, True]
    assert [record["family"] for record in metrics(out)] == table.groupby("group")["family"].first().tolist()


def test_samples_of_a_group_differ(school: School) -> None:
    by = trainer(school, group_size=16, temperature=2.0)
    assert len({tuple(completion.ids) for completion in by.sample(by.tasks[0])}) == 16


def test_no_two_samples_of_any_group_or_seed_share_their_random_numbers(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[float, ...]] = []

    def noting(*arguments: Any) -> Tensor:
        numbers = draw_uniforms(*arguments)
        drawn.extend(map(tuple, numbers.tolist()))
        return numbers

    monkeypatch.setattr(rloo, "draw_uniforms", noting)
    for seed in (0, 1, 2, 12, 42):
        by = trainer(school, seed=seed, group_size=16, max_new_tokens=4)
        for by.group in range(12):
            by.sample(by.tasks[0])
    assert len(set(drawn)) == len(drawn) == 5 * 12 * 16


def test_groups_and_seeds_draw_anew_for_the_same_prompt(school: School) -> None:
    drawn = []
    for seed, group in ((2, 0), (2, 1), (3, 0)):
        by = trainer(school, seed=seed, temperature=2.0)
        by.group = group
        drawn.append([tuple(completion.ids) for completion in by.sample(trainer(school).tasks[0])])
    assert all(not set(one) & set(other) for one, other in itertools.combinations(drawn, 2))


def test_there_is_no_default_seed() -> None:
    with pytest.raises(ValidationError, match="seed"):
        RLJob(rl=RLRecipe(), execution=CPU)  # type: ignore[call-arg]


def test_what_cannot_be_judged_stops_the_run(school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = VerifierError("the sandbox failed twice for f: no process could be started")
    monkeypatch.setattr(rloo, "Verifier", lambda: ScriptedVerifier("pfpfpf", broken))
    with pytest.raises(VerifierError, match=re.escape(str(broken))):
        school.train(rl_job(), tmp_path)
    assert not (tmp_path / "out").exists()
