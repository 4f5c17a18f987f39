"""Rows of ids as packed tensors: rounding of the token count, and its limit."""

import pytest
import torch

from glint.model.layout import row_block
from glint.tasks.tokenizer import PAD
from glint.train.batches import IGNORED, next_token_batch, pack, rounded_layout


@pytest.mark.parametrize("lengths", [[7, 3, 5], [1], [40, 40, 40], [31, 32, 33]])
@pytest.mark.parametrize("prompt", [0, 9])
def test_bf16_counts_are_multiples_of_the_block_and_no_row_shrinks(lengths: list[int], prompt: int) -> None:
    layout = rounded_layout(lengths, torch.bfloat16, 192, prompt)
    assert layout.tokens % row_block(torch.bfloat16) == 0
    assert all(new >= old for new, old in zip(layout.lengths, lengths, strict=True))


def test_float32_needs_no_rounding() -> None:
    assert rounded_layout([7, 3, 5], torch.float32, 192).lengths == (7, 3, 5)


def test_rounding_never_exceeds_the_context() -> None:
    layout = rounded_layout([39], torch.bfloat16, 40)
    assert layout.lengths == (39,)
    assert max(rounded_layout([20, 10], torch.bfloat16, 40, 20).lengths) <= 20


def test_padding_carries_no_loss() -> None:
    inputs_N, targets_N, layout = next_token_batch([[1, 5, 6, 2], [1, 5, 2]], torch.bfloat16, 192)
    assert layout.tokens == len(inputs_N) == 32
    assert inputs_N[:3].tolist() == [1, 5, 6]
    assert targets_N[:3].tolist() == [5, 6, 2]
    assert (targets_N != IGNORED).sum() == 5
    assert (inputs_N == PAD).sum() == 32 - 5


def test_rows_are_packed_one_after_another() -> None:
    assert pack([[4, 5], [6]], rounded_layout([2, 1], torch.float32, 192)).tolist() == [4, 5, 6]
