"""Products by packed matrices: those of float64 up to rounding, with oneDNN and without; and when a decoder packs anew."""

import pytest
import torch

from glint.config.model import ModelRecipe
from glint.device import packs
from glint.model import packed
from glint.model.decoder import Decoder
from glint.randomness import torch_generator

SMALL = ModelRecipe(width=32, layers=4, heads=2, experts=4, top_k=2, expert_hidden=16, streams=2, window=8, stride=8, context=64)
PROMPT = [1, 40, 50, 60]
DTYPES = ((torch.float32, 1e-6), (torch.bfloat16, 2**-8))


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize(("dtype", "error"), DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 16, 100])
def test_a_product_is_that_of_float64_up_to_rounding(
    monkeypatch: pytest.MonkeyPatch, onednn: bool, dtype: torch.dtype, error: float, rows: int
) -> None:
    if onednn and not packs(torch.device("cpu"), dtype):
        pytest.skip(f"oneDNN packs no {dtype} here")
    monkeypatch.setattr(packed, "packs", lambda *_: onednn)
    generator = torch_generator(rows, "packed")
    x_RK, matrix_NK = (torch.randn(shape, generator=generator).to(dtype) for shape in ((rows, 48), (40, 48)))
    found_RN = packed.Packed(matrix_NK)(x_RK)
    wanted_RN = x_RK.double() @ matrix_NK.double().t()
    assert found_RN.dtype == dtype
    assert found_RN.is_contiguous()
    assert (found_RN - wanted_RN).abs().max() <= error * wanted_RN.abs().max()


def logits(model: Decoder) -> torch.Tensor:
    """Return the logits after one decode step."""
    _, cache = model.prefill([PROMPT])
    return model.step(torch.tensor([70]), cache)


def test_a_trainable_layer_is_packed_anew_whenever_decoding_begins() -> None:
    model = Decoder(SMALL).initialise(torch_generator(1, "packed")).freeze("last_block")
    before = logits(model)
    with torch.no_grad():
        model.get_parameter("blocks.3.up").mul_(2)
    changed = logits(model)
    assert not torch.equal(changed, before)
    assert torch.equal(changed, logits(Decoder.freeze(model, "last_block")))


def test_frozen_layers_are_packed_once_and_anew_after_freezing() -> None:
    model = Decoder(SMALL).initialise(torch_generator(1, "packed")).freeze("last_block")
    layers = [model.prefill([PROMPT])[1].weights.compiled for _ in range(2)]
    assert [one is other for one, other in zip(*layers, strict=True)] == [True, True, True, False]
    before = logits(model)
    with torch.no_grad():
        model.get_parameter("blocks.0.up").mul_(2)
    assert not torch.equal(logits(model.freeze("last_block")), before)
