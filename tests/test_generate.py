"""Sampling: what is chosen, when a completion ends, and that neighbours in the batch change nothing."""

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from glint.config.model import ModelRecipe
from glint.generate import NEVER_SAMPLED, Completion, choose, draw_uniforms, generate, mask_control
from glint.model.decoder import Decoder
from glint.model.layout import Layout
from glint.randomness import torch_generator
from glint.tasks.tokenizer import BOS, EOS, PAD, SEP, VOCABULARY
from tests.reference import hybrid
from tests.reference.adapter import decoder

MODEL = ModelRecipe(width=12, layers=4, heads=3, experts=3, top_k=2, expert_hidden=5, streams=2, window=3, stride=4, context=48)
PROMPTS = [[BOS, 50, 60], [BOS, 80, 81, 82, 83, 84, 85, 86, 87], [BOS], [BOS, 200, 100, 200, 100]]


@pytest.fixture(scope="module")
def model() -> Decoder:
    return decoder(hybrid.random_weights(MODEL, torch.Generator().manual_seed(4)), MODEL).freeze()


def uniforms(count: int, tokens: int, *names: str | int) -> Tensor:
    return draw_uniforms(count, tokens, torch_generator(7, *names))


def full_logits(model: Decoder, ids: list[int]) -> Tensor:
    """Return the logits [T, V] of one whole forward pass."""
    with torch.no_grad():
        return model.logits(model(torch.tensor(ids), Layout((len(ids),))).final_ND)


def ids(groups: list[list[Completion]]) -> list[list[list[int]]]:
    return [[completion.ids for completion in group] for group in groups]


def test_greedy_is_the_argmax_of_the_full_forward_at_every_position(model: Decoder) -> None:
    groups = generate(model, PROMPTS, None, 20)
    assert [len(group) for group in groups] == [1] * len(PROMPTS)
    for prompt, (completion,) in zip(PROMPTS, groups, strict=True):
        logits = full_logits(model, prompt + completion.ids[:-1])[len(prompt) - 1 :]
        assert mask_control(logits).argmax(-1).tolist() == completion.ids


def test_a_sample_inverts_the_softmax_of_the_full_forward_at_every_position(model: Decoder) -> None:
    numbers = uniforms(3, 12, "inversion")
    (group,) = generate(model, PROMPTS[:1], [numbers], 12, temperature=0.8)
    for completion, own in zip(group, numbers, strict=True):
        logits = full_logits(model, PROMPTS[0] + completion.ids[:-1])[len(PROMPTS[0]) - 1 :]
        reach = torch.softmax(mask_control(logits).double() / 0.8, -1).cumsum(-1)
        for t, token in enumerate(completion.ids):
            assert reach[t, token - 1] - 1e-5 <= own[t] <= reach[t, token] + 1e-5


def test_a_sample_depends_on_nothing_else_in_the_batch(model: Decoder) -> None:
    numbers = [uniforms(6, 16, index) for index in range(len(PROMPTS))]
    together = ids(generate(model, PROMPTS, numbers, 16))
    for index, prompt in enumerate(PROMPTS):
        assert ids(generate(model, [prompt], [numbers[index]], 16)) == [together[index]]
        assert ids(generate(model, [prompt], [numbers[index][4:5]], 16)) == [[together[index][4]]]
    assert ids(generate(model, PROMPTS[::-1], numbers[::-1], 16)) == together[::-1]


def test_rows_that_leave_the_batch_leave_the_others_as_they_were(model: Decoder) -> None:
    numbers = uniforms(13, 16, "leaving")

    def stop_early(_: int, sampled: list[int]) -> bool:
        return len(sampled) >= sampled[0] % 17

    (free,) = generate(model, PROMPTS[:1], [numbers], 16)
    (stopped,) = generate(model, PROMPTS[:1], [numbers], 16, is_complete=stop_early)
    lengths = [len(completion.ids) for completion in stopped]
    assert len(set(lengths)) > 4
    assert [completion.ids for completion in stopped] == [completion.ids[:length] for completion, length in zip(free, lengths, strict=True)]


def test_more_copies_or_tokens_leave_the_first_uniform_numbers_as_they_were() -> None:
    few, many = uniforms(3, 10, "copies"), uniforms(5, 10, "copies")
    assert torch.equal(few, many[:3])
    assert ((few >= 0) & (few < 1)).all()


@pytest.mark.parametrize("temperature", [0.35, 1.0, 3.0])
def test_frequencies_are_those_of_the_softmax(temperature: float) -> None:
    logits = torch.randn(14, generator=torch.Generator().manual_seed(2)) * 1.5
    logits[list(NEVER_SAMPLED)] = 9
    count = 40000
    numbers = torch.rand(count, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    drawn = torch.bincount(choose(logits.expand(count, -1), temperature, numbers), minlength=14)
    shares = [0.0 if v in NEVER_SAMPLED else float(torch.exp(logits[v].double() / temperature)) for v in range(14)]
    expected = torch.tensor(shares) / sum(shares) * count
    assert drawn[list(NEVER_SAMPLED)].sum() == 0
    enough = expected > 5
    assert drawn[~enough].sum() < 60
    found, known = drawn[enough].double(), expected[enough].double()
    assert chisquare(found.numpy(), (known * found.sum() / known.sum()).numpy()).pvalue > 1e-3


def test_a_uniform_number_picks_the_id_whose_share_it_falls_into() -> None:
    logits = torch.full((1, 8), -1e4)
    logits[0, [4, 5, 7]] = torch.tensor([0.25, 0.5, 0.25]).log()
    picked = [int(choose(logits, 1.0, torch.tensor([u], dtype=torch.float64))) for u in (0.0, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-53)]
    assert picked == [4, 4, 5, 5, 7, 7]


def test_a_smaller_temperature_makes_the_likely_likelier() -> None:
    logits = torch.zeros(1, 6)
    logits[0, 5] = 1
    # Ids 0, 1 and 3 are never sampled; id 5 has e^(1/T) / (2 + e^(1/T)) of the rest, the last share.
    for temperature in (0.5, 2.0):
        edge = 2 / (2 + torch.exp(torch.tensor(1 / temperature, dtype=torch.float64)))
        assert choose(logits, temperature, edge[None] + 1e-9).item() == 5
        assert choose(logits, temperature, edge[None] - 1e-9).item() == 4


@pytest.mark.parametrize("token", NEVER_SAMPLED)
def test_control_ids_are_never_chosen(token: int) -> None:
    logits = torch.zeros(2, VOCABULARY)
    logits[:, token] = 1e4
    assert choose(logits, 1.0, None).tolist() != [token] * 2
    assert token not in choose(logits.expand(2, -1), 1.0, torch.tensor([0.0, 0.999], dtype=torch.float64)).tolist()
    assert set(NEVER_SAMPLED) == {PAD, BOS, SEP}


def certain(token: int) -> Decoder:
    """Return a model that gives `token` whatever it reads: no block adds anything, and every id's embedding points at that of `token`."""
    model = Decoder(MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.final_norm.fill_(1)
        model.embedding[:, 0] = 1
        model.embedding[token, 0] = 5
    return model.freeze()


def test_eos_ends_a_completion_and_belongs_to_it() -> None:
    ((completion,),) = generate(certain(EOS), PROMPTS[:1], None, 9)
    assert (completion.ids, completion.ended) == ([EOS], "eos")


def test_without_an_end_a_completion_has_all_its_tokens() -> None:
    ((completion,),) = generate(certain(77), PROMPTS[:1], None, 9)
    assert (completion.ids, completion.ended) == ([77] * 9, "length")


def test_the_stop_rule_is_asked_after_each_token_and_its_last_token_belongs_to_the_completion() -> None:
    asked: list[tuple[int, int]] = []

    def after_prompt_plus_two(prompt: int, sampled: list[int]) -> bool:
        asked.append((prompt, len(sampled)))
        return len(sampled) == prompt + 2

    groups = generate(certain(77), PROMPTS[:2], [uniforms(2, 9, "a"), uniforms(2, 9, "b")], 9, is_complete=after_prompt_plus_two)
    assert ids(groups) == [[[77] * 2] * 2, [[77] * 3] * 2]
    assert {completion.ended for group in groups for completion in group} == {"parses"}
    assert sorted(asked) == sorted([(0, 1), (0, 2)] * 2 + [(1, 1), (1, 2), (1, 3)] * 2)


def test_a_completion_that_ends_with_its_last_token_counts_as_ended() -> None:
    ((completion,),) = generate(certain(77), PROMPTS[:1], None, 3, is_complete=lambda _, sampled: len(sampled) == 3)
    assert (completion.ids, completion.ended) == ([77] * 3, "parses")


def test_the_context_can_be_filled_to_its_end(model: Decoder) -> None:
    prompt = [BOS] + [70] * 40
    ((completion,),) = generate(certain(77), [prompt], None, MODEL.context - len(prompt) + 1)
    assert len(completion.ids) == 8


def test_what_does_not_fit_the_context_is_one_sentence(model: Decoder) -> None:
    prompt = [BOS] + [70] * 40
    with pytest.raises(ValueError, match=r"^a prompt of 41 tokens and max_new_tokens 9 exceed model.context 48$"):
        generate(certain(77), [prompt], None, 9)
    with pytest.raises(ValueError, match=r"^a prompt of 60 tokens and max_new_tokens 1 exceed model.context 48$"):
        generate(model, [[70] * 60], None, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_diverged_model_is_one_sentence_and_no_sample(value: float) -> None:
    logits = torch.zeros(2, VOCABULARY)
    logits[1, 70] = value
    for uniform in (None, torch.tensor([0.5, 0.5], dtype=torch.float64)):
        with pytest.raises(ValueError, match=r"^the model's logits are not finite"):
            choose(logits, 1.0, uniform)


def test_ids_beyond_the_bytes_are_never_sampled() -> None:
    logits = torch.zeros(1, VOCABULARY + 3)
    logits[0, VOCABULARY:] = 50.0
    logits[0, 70] = 10.0
    assert choose(logits, 1.0, None).item() == 70
    assert choose(logits, 1.0, torch.tensor([1 - 2**-53], dtype=torch.float64)).item() < VOCABULARY
