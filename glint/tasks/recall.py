"""Texts with names to recall: a name is stated among other words, and later asked by its initial. All is drawn from a seed.

    we see Kem and they. Tob had a long?Kem day by the?Tob

A name is a capital, its initial, and some small letters, each drawn from all 26. `?` and the initial ask, the other letters are the
answer: small, so that they do not stand out from the words, and only their place behind the initial tells them. The initials of a text
differ, so that every question has one answer; the letters of a name say nothing of each other, nor of another name's. A distance is the
number of bytes from a letter in the statement to the same letter in the answer.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from glint.config.recall import INITIALS, RecallRecipe
from glint.randomness import rng

COMMON = """
a i am an as at be by do go he if in is it me my no of on or so to up us we all and are but can day for get had has her him his how man
may new not now off old one our out own put say see she sun the too two use was way who why yes you also back been both come door down
each even fire find four from give good hand have here home into just keep kind know land last left life like long look made make many
more most move much must name near need next once only open over part road room said same seen side some soon such take tell than that
them then they this time told took tree turn under until upon very walk want warm well went were what when wind with word year your
about after again below could every field first found great green heard house light might never night often other place plant point
quite river right shall small sound stand still stone their there these thing think three water where which white whole world would
"""
WORDS = sorted(COMMON.split(), key=len)
LENGTHS = [len(word) for word in WORDS]
ATTEMPTS = 1000
"""Draws of one text's places before it is given up."""

Pair = tuple[int, int]
"""Bytes at which a name is stated, and asked, the sign before it included."""
Wanted = tuple[list[int], int]
"""Distances of the names to be asked, and how many more are to be stated."""


@dataclass(frozen=True)
class Question:
    """A name that is asked."""

    answer: int
    """Byte of the text at which the answer begins."""
    distance: int
    """Bytes from its statement."""
    candidates: int
    """Names stated by then and not asked yet, the right one among them."""


@dataclass(frozen=True)
class Text:
    """A text and its questions in the order in which they stand."""

    content: bytes
    questions: tuple[Question, ...]


class Dice:
    """Uniform whole numbers from a generator, which gives thousands at once about as fast as one."""

    BLOCK = 1024

    def __init__(self, generator: Generator):
        self.generator = generator
        self.stock: list[float] = []

    def below(self, count: int) -> int:
        """Return a number from 0 to `count` - 1."""
        if not self.stock:
            self.stock = self.generator.random(self.BLOCK).tolist()
        return int(self.stock.pop() * count)


class Places:
    """Where names may still begin, as the bits of one number: bit p for byte p. So a shift moves all places by a distance at once."""

    def __init__(self, length: int, span: int):
        self.span = span
        self.count = length - span + 1
        self.free = (1 << self.count) - 1

    @classmethod
    def drawn(cls, length: int, span: int, distances: list[int], unasked: int, dice: Dice) -> tuple[list[Pair], list[int]] | None:
        """Return where the names stand that are asked (statement and question), and those that are not; None where one finds no room.

        The farthest are placed first, for they have the least choice.
        """
        places = cls(length, span)
        pairs = []
        for distance in sorted(distances, reverse=True):
            stated = places.choose(distance, dice)
            if stated is None:
                return None
            pairs.append((stated, stated + distance))
        alone = [places.choose(0, dice) for _ in range(unasked)]
        found = [place for place in alone if place is not None]
        return (pairs, found) if len(found) == unasked else None

    def choose(self, distance: int, dice: Dice) -> int | None:
        """Return and take one of the places that are free and, `distance` later, free again; each is equally likely."""
        both = self.free & (self.free >> distance)
        if not both:
            return None
        place = dice.below(self.count)
        while not both >> place & 1:
            place = dice.below(self.count)
        for start in {place, place + distance}:
            self._take(start)
        return place

    def _take(self, start: int) -> None:
        """No other name may overlap the one at `start`."""
        first = max(0, start - self.span + 1)
        self.free &= ~(((1 << (start + self.span - first)) - 1) << first)


def held_out(recipe: RecallRecipe) -> list[Text]:
    """Return the texts on which checkpoints are scored: from the evaluation seed, each distance equally often in each text."""
    generator = rng(recipe.evaluation_seed, "recall", "held out")
    distances = list(recipe.distances) * (recipe.questions // len(recipe.distances))
    return [_text(recipe, recipe.length, lambda: (distances, recipe.unasked), generator) for _ in range(recipe.held_out)]


def training_batch(recipe: RecallRecipe, seed: int, step: int) -> list[Text]:
    """Return the texts of one optimiser step (from 0): each step of each training seed draws its own, with any number of names.

    The distances are drawn log-uniformly, so that no place says where a name was stated but the name itself.
    """
    generator = rng(seed, "recall", "train", step)
    stage = recipe.stage(step)
    low, high = np.log(recipe.nearest), np.log(recipe.farthest(stage.length) + 1)

    def text() -> Text:
        names = recipe.most_names(stage.length)
        asked = int(generator.integers(1, min(recipe.questions, names), endpoint=True))
        unasked = int(generator.integers(min(recipe.unasked, names - asked), endpoint=True))
        return _text(recipe, stage.length, lambda: (np.exp(generator.uniform(low, high, asked)).astype(int).tolist(), unasked), generator)

    return [text() for _ in range(stage.batch)]


def _text(recipe: RecallRecipe, length: int, wanted: Callable[[], Wanted], generator: Generator) -> Text:
    """Return a text; where the names that are `wanted` find no room, they are drawn anew. ValueError if that never ends."""
    dice = Dice(generator)
    for _ in range(ATTEMPTS):
        places = Places.drawn(length, recipe.span, *wanted(), dice)
        if places is not None:
            return _written(length, *places, recipe.letters, dice, generator)
    raise ValueError(
        f"recall: {ATTEMPTS} times the names of a text of {length} bytes found no room; lower recall.questions or lengthen the texts"
    )


def _written(length: int, pairs: list[Pair], alone: list[int], letters: int, dice: Dice, generator: Generator) -> Text:
    """Return the text with fresh names at their places and words between them."""
    names = _names(len(pairs) + len(alone), letters, generator)
    pieces = {stated: b" " + name for stated, name in zip([*(stated for stated, _ in pairs), *alone], names, strict=True)}
    pieces |= {asked: b"?" + pieces[stated][1:] for stated, asked in pairs}
    content = b""
    for start in sorted(pieces):
        content += _words(start - len(content), dice) + pieces[start]
    content += _words(length - len(content), dice)
    return Text(content, _questions(pairs, alone))


def _names(count: int, letters: int, generator: Generator) -> list[bytes]:
    initials = generator.permutation(INITIALS)[:count, None] + ord("A")
    others = generator.integers(INITIALS, size=(count, letters)) + ord("a")
    return [row.tobytes() for row in np.hstack([initials, others]).astype(np.uint8)]


def _words(room: int, dice: Dice) -> bytes:
    """Return words, each behind a space, that fill `room` bytes; a full stop where one byte is left."""
    words = []
    while room > 1:
        word = WORDS[dice.below(bisect_right(LENGTHS, room - 1))]
        words.append(f" {word}")
        room -= 1 + len(word)
    return ("".join(words) + "." * room).encode()


def _questions(pairs: list[Pair], alone: list[int]) -> tuple[Question, ...]:
    """Return the questions in the order of the text, with the names among which each could be guessed."""
    stated = [*(first for first, _ in pairs), *alone]
    asked = sorted((second, first) for first, second in pairs)
    return tuple(
        Question(start + 2, start - first, sum(place < start for place in stated) - before) for before, (start, first) in enumerate(asked)
    )
