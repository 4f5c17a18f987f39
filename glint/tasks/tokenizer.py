"""Bytes as tokens: four control ids, then one id for each byte value."""

from collections.abc import Iterable

PAD, BOS, EOS, SEP = 0, 1, 2, 3
CONTROL_IDS = 4
VOCABULARY = CONTROL_IDS + 256
NEWLINE = CONTROL_IDS + ord("\n")


def encode(text: str, bos: bool = True, eos: bool = False) -> list[int]:
    """Return the ids of the UTF-8 bytes of `text`, between `BOS` and `EOS` where asked for."""
    body = [CONTROL_IDS + byte for byte in text.encode()]
    return [BOS] * bos + body + [EOS] * eos


def decode(ids: Iterable[int]) -> bytes:
    """Return the bytes that `ids` stand for, control ids dropped; the bytes of a model need not be UTF-8."""
    return bytes(token - CONTROL_IDS for token in ids if token >= CONTROL_IDS)
