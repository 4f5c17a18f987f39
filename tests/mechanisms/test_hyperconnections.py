"""Hyper-connections against float64 formulas, against the library, and against what their names promise."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from glint.model import hyperconnections
from glint.model.decoder import Decoder
from glint.model.hyperconnections import Connection, HyperStreams, Mixing, sinkhorn
from tests.mechanisms import formulas
from tests.mechanisms.held import Held
from tests.mechanisms.weights import (
    RECIPE,
    WIDTH,
    doubles,
    generator,
    gradients,
    largest_disagreement,
    library_config,
    library_names,
    randomise,
)

TOKENS, STREAMS = 21, RECIPE.streams
WRONG = 0.3
"""The known mistakes change the new streams by at least this much."""


class HeldConnection(Held):
    """The connection before attention by itself."""

    def __init__(self) -> None:
        tensors = HyperStreams(RECIPE).parameters()
        super().__init__({name.removeprefix("attention_"): tensor for name, tensor in tensors.items() if name.startswith("attention_")})

    def forward(self, streams_NSD: Tensor) -> tuple[Tensor, Mixing]:
        return Connection(*(self.get_parameter(name) for name in hyperconnections.TENSORS)).read(streams_NSD, RECIPE.norm_epsilon)


def connection(seed: int = 0) -> HeldConnection:
    return randomise(HeldConnection(), seed, gain=2)


def at_the_start() -> HeldConnection:
    """Return the connection of a model that has not been trained."""
    block, module = Decoder(RECIPE).initialise(generator(0)).blocks[0], HeldConnection()
    module.load_state_dict({name: block.get_parameter(f"attention_{name}") for name in hyperconnections.TENSORS})
    return module


def drawn() -> tuple[Tensor, Tensor]:
    """Return streams [N, S, D] and a layer's output [N, D]."""
    draws = generator(1)
    return 2 * torch.randn(TOKENS, STREAMS, WIDTH, generator=draws), torch.randn(TOKENS, WIDTH, generator=draws)


def expected(weights: dict[str, Tensor], streams: Tensor, y: Tensor, iterations: int = 20) -> tuple[Tensor, Tensor]:
    tokens = [formulas.hyper_connection(weights, *token, iterations=iterations) for token in zip(streams.double(), y.double(), strict=True)]
    return torch.stack([read for read, _, _ in tokens]), torch.stack([new for _, new, _ in tokens])


def test_read_write_and_gradients_match_the_formulas() -> None:
    module, (streams, y) = connection(), drawn()
    weights = doubles(module)
    read, mixing = module(streams)
    new = mixing.write(streams, y)
    exact_read, exact_new = expected(weights, streams, y)
    assert (read - exact_read).abs().max() < 1e-5
    assert (new - exact_new).abs().max() < 1e-5
    own = gradients(read.square().sum() + new.square().sum(), dict(module.named_parameters()))
    assert largest_disagreement(own, gradients(exact_read.square().sum() + exact_new.square().sum(), weights)) < 1e-4


def test_the_comparison_notices_an_untransposed_comb_and_too_few_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    module, (streams, y) = connection(), drawn()
    _, exact = expected(doubles(module), streams, y)
    _, mixing = module(streams)
    untransposed = replace(mixing, comb_NSS=mixing.comb_NSS.transpose(1, 2))
    assert (untransposed.write(streams, y) - exact).abs().max() > WRONG
    monkeypatch.setattr(hyperconnections, "SINKHORN_ITERATIONS", 2)
    assert (module(streams)[1].write(streams, y) - exact).abs().max() > WRONG


def test_rows_and_columns_of_comb_sum_to_one() -> None:
    comb = connection()(drawn()[0])[1].comb_NSS
    assert (comb > 0).all()
    assert (comb.sum(1) - 1).abs().max() < 5e-6
    one_more = sinkhorn(torch.randn(8, STREAMS, STREAMS, generator=generator(2)))
    assert (one_more.sum(2) - 1).abs().max() < 5e-6


def test_the_start_keeps_streams_apart_and_layers_at_weight_one() -> None:
    module = at_the_start()
    streams = drawn()[0]
    read, mixing = module(streams)
    assert (read - streams.sum(1) / 2).abs().max() < 0.2
    assert (mixing.post_NS - 1).abs().max() < 0.02
    kept = mixing.comb_NSS.diagonal(dim1=1, dim2=2)
    assert kept.min() > 0.94
    assert kept.max() < 0.96


def test_equal_streams_stay_equal_to_a_plain_residual() -> None:
    module = at_the_start()
    _, y = drawn()
    streams = y[:, None].expand(-1, STREAMS, -1)
    _, mixing = module(streams)
    assert (mixing.write(streams, 3 * y).mean(1) - 4 * y).abs().max() < 0.05


@pytest.mark.parametrize("gain", [1, 3])
def test_matches_the_library(library: Any, gain: float) -> None:
    module, streams = connection(), gain * drawn()[0]
    other = library.Glm5NextTextHyperConnection(library_config(library))
    other.load_state_dict(library_names({f"attention_{name}": tensor for name, tensor in module.named_parameters()}, "attn_hc"))
    read, mixing = module(streams)
    post, comb, collapsed = other(streams[None])
    assert (read - collapsed[0]).abs().max() < 1e-5
    assert (mixing.post_NS - post[0]).abs().max() < 2e-6
    assert (mixing.comb_NSS - comb[0]).abs().max() < 2e-6
