"""Texts with names: what is asked has been stated, at the distance that the question says, and drawn anew for every step and seed."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glint.config.recall import RecallRecipe, StageRecipe
from glint.randomness import rng
from glint.tasks.recall import WORDS, Dice, Places, _questions, held_out, training_batch

PLAN = RecallRecipe(
    distances=(8, 16, 32),
    questions=6,
    unasked=2,
    letters=2,
    nearest=4,
    stages=(StageRecipe(length=64, batch=5, steps=3), StageRecipe(length=160, batch=4, steps=200)),
    held_out=10,
    checkpoints=(0, 203),
)  # fmt: skip


def check(text, letters):
    """Read a text anew, and compare what it asks with its questions; return how many names it states."""
    name = rb"([A-Z])([a-z]{%d})" % letters
    stated = {match[1]: match for match in re.finditer(rb" " + name, text.content)}
    asked = list(re.finditer(rb"\?" + name, text.content))
    assert len(re.findall(rb"[A-Z]", text.content)) == len(stated) + len(asked)  # no initial is stated twice
    assert len({match[1] for match in asked}) == len(asked) == len(text.questions)
    for before, (match, question) in enumerate(zip(asked, text.questions, strict=True)):
        source = stated[match[1]]
        assert (question.answer, question.distance) == (match.start(2), match.start(2) - source.start(2))
        end = question.answer + letters
        assert text.content[question.answer : end] == text.content[question.answer - question.distance : end - question.distance]
        earlier = [other for other in stated.values() if other.start() < match.start()]
        assert question.candidates == len(earlier) - before
    rest = re.sub(rb"[ ?]" + name, b" ", text.content).decode().replace(".", " ")
    assert set(rest.split()) <= set(WORDS)
    return len(stated)


def test_a_scored_text_states_every_name_and_asks_at_each_distance_equally_often():
    texts = held_out(PLAN)
    assert len(texts) == 10
    for text in texts:
        assert len(text.content) == 160
        assert check(text, 2) == 6 + 2
        assert Counter(question.distance for question in text.questions) == {8: 2, 16: 2, 32: 2}


def test_a_training_text_has_the_length_of_its_stage_and_any_number_of_names():
    for step, length, batch in ((0, 64, 5), (2, 64, 5), (3, 160, 4), (202, 160, 4)):
        texts = training_batch(PLAN, 1, step)
        assert [len(text.content) for text in texts] == [length] * batch
        for text in texts:
            assert 1 <= len(text.questions) <= check(text, 2) <= length // 12
    asked = {len(text.questions) for step in range(3, 60) for text in training_batch(PLAN, 1, step)}
    assert asked == set(range(1, 7))


def test_training_asks_at_distances_that_are_log_uniform():
    drawn = [question.distance for step in range(3, 203) for text in training_batch(PLAN, 1, step) for question in text.questions]
    assert (min(drawn), max(drawn)) == (4, 32)
    octaves = Counter(distance.bit_length() for distance in drawn if distance < 32)
    assert all(count == pytest.approx(octaves.total() / 3, rel=0.15) for count in octaves.values())


def test_candidates_are_the_names_stated_and_not_asked_yet():
    """Kem Tob?Tob Zed?Kem Ann?Zed: Tob is one of two names, Kem one of Kem and Zed, Zed one of Zed and Ann, which stands alone."""
    found = _questions([(0, 16), (4, 8), (12, 24)], [20])
    assert [(question.answer, question.distance, question.candidates) for question in found] == [(10, 4, 2), (18, 16, 2), (26, 12, 2)]
    assert [question.candidates for question in _questions([(0, 8), (4, 12)], [])] == [2, 1]


def test_scored_texts_depend_on_what_is_asked_and_on_their_own_seed_alone():
    other = PLAN.model_copy(update={"lr": 0.5, "checkpoints": (0, 3, 203), "nearest": 6, "answer_weight": 0.0})
    assert held_out(other) == held_out(PLAN)
    assert held_out(PLAN.model_copy(update={"evaluation_seed": 1})) != held_out(PLAN)


def test_steps_and_seeds_draw_their_own_texts_and_the_scored_ones_are_none_of_them():
    batches = [training_batch(PLAN, seed, step) for seed in (1, 2, PLAN.evaluation_seed) for step in range(4, 7)]
    contents = [text.content for texts in [held_out(PLAN), *batches] for text in texts]
    assert len(set(contents)) == len(contents) == 10 + 9 * 4
    assert training_batch(PLAN, 1, 4) == batches[0]


def test_what_finds_no_room_ends_in_one_sentence():
    tight = PLAN.model_copy(update={"stages": (StageRecipe(length=55, batch=1, steps=1),)})
    with pytest.raises(ValueError, match=r"1000 times the names of a text of 55 bytes found no room; lower recall.questions or lengthen"):
        held_out(tight)


def test_a_place_is_any_of_those_where_both_ends_are_free():
    taken = {Places(20, 4).choose(6, dice) for dice in [Dice(rng(1))] for _ in range(400)}
    assert taken == set(range(20 - 4 - 6 + 1))
    places = Places(20, 4)
    first = places.choose(6, Dice(rng(2)))
    assert first is not None
    occupied = {start + byte for start in (first, first + 6) for byte in range(4)}
    free = [start for start in range(17) if not occupied & set(range(start, start + 4))]
    assert [start for start in range(17) if places.free >> start & 1] == free
    assert Places(9, 4).choose(6, Dice(rng(3))) is None


@settings(max_examples=60, deadline=None)
@given(
    letters=st.integers(1, 8),
    beyond=st.sets(st.integers(0, 300), min_size=1, max_size=6),
    each=st.integers(1, 3),
    unasked=st.integers(0, 6),
    spare=st.tuples(st.integers(0, 500), st.integers(0, 200)),
    seed=st.integers(0, 2**40),
)
def test_every_recipe_that_is_accepted_finds_room_for_its_names(letters, beyond, each, unasked, spare, seed):
    """Texts as short as the recipe allows, and longer by `spare`."""
    span = 2 + letters
    distances, questions = tuple(sorted(span + more for more in beyond)), each * len(beyond)
    scored = max(2 * span * (2 * questions + unasked), distances[-1] + 4 * span * each) + spare[1]
    lengths = (5 * span + spare[0], max(scored, 5 * span))
    plan = RecallRecipe(
        distances=distances,
        questions=questions,
        unasked=unasked,
        letters=letters,
        nearest=span,
        stages=tuple(StageRecipe(length=length, batch=2, steps=1) for length in lengths),
        held_out=2,
        checkpoints=(0, 2),
        evaluation_seed=seed,
    )
    for text in held_out(plan):
        assert len(text.content) == lengths[-1]
        assert check(text, letters) == questions + unasked
        assert Counter(question.distance for question in text.questions) == dict.fromkeys(distances, each)
    for step, length in enumerate(lengths):
        for text in training_batch(plan, seed, step):
            assert len(text.content) == length
            assert check(text, letters) >= len(text.questions) >= 1


def test_order_alone_is_worth_what_the_statistics_say():
    """In the default recipe's texts: the name stated last and not asked yet, against a guess; and the first at the longest distance."""
    last: dict[int, list[bool]] = {}
    chance: dict[int, list[float]] = {}
    for text in held_out(RecallRecipe()):
        waiting = sorted(question.answer - question.distance for question in text.questions)
        for question in text.questions:
            stated = question.answer - question.distance
            open_ = [place for place in waiting if place < question.answer]
            last.setdefault(question.distance, []).append(stated == open_[-1])
            chance.setdefault(question.distance, []).append(1 / question.candidates)
            assert len(open_) == question.candidates
            assert question.distance < 512 or stated == open_[0]
            waiting.remove(stated)
    shares = [[round(100 * sum(found[distance]) / len(found[distance])) for distance in (16, 128)] for found in (last, chance)]
    assert shares == [[60, 12], [17, 16]]
    assert [round(100 * sum(map(sum, found.values())) / 960) for found in (last, chance)] == [28, 21]
