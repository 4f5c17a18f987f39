import pytest
from hypothesis import given
from hypothesis import strategies as st

from glint.tasks import tokenizer


def test_ids_are_control_ids_then_bytes():
    assert tokenizer.encode("a\n", eos=True) == [1, 4 + 97, 4 + 10, 2]
    assert tokenizer.encode("é", bos=False) == [4 + 0xC3, 4 + 0xA9]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_unicode_text_comes_back(text):
    assert tokenizer.decode(tokenizer.encode(text, eos=True)).decode() == text


def test_decoding_keeps_bytes_that_are_no_text_and_drops_control_ids():
    assert tokenizer.decode([tokenizer.BOS, 4 + 0xFF, tokenizer.SEP, 4, tokenizer.PAD, tokenizer.EOS]) == b"\xff\x00"


def test_a_lone_surrogate_has_no_bytes():
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode("\ud800")
