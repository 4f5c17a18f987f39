"""Costs: the cache counted by hand, and what is measured where."""

import json

import pytest
import torch

from glint.config.costs import CostsJob, CostsRecipe
from glint.config.execution import ExecutionRecipe
from glint.config.tree import Recipe
from glint.costs import alone, at_context, cache_bytes, measure
from glint.model.attention import LinearState
from glint.model.decoder import Decoder
from tests.model.shapes import COMBINATIONS
from tests.train.tiny import CPU, MODEL

DENSE = MODEL.model_copy(update={"linear": "none", "sparse": "dense"})
COSTS = CostsRecipe(contexts=(32, 64), rows=2, steps=2, passes=1, products=(64,))


def job(model):
    return CostsJob(model=model, costs=COSTS, execution=CPU, sequence=64, seed=1)


def test_a_cache_is_the_bytes_of_its_tensors_each_counted_once():
    shared = torch.zeros(6, dtype=torch.float32)
    layers = [LinearState(torch.zeros(2, 3, dtype=torch.bfloat16), shared[:2]), [(shared[3:], 7)]]
    assert cache_bytes(layers) == 6 * 2 + 6 * 4


@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_cache_of_every_mechanism_is_found(name):
    """Each layer keeps something, and more rows keep proportionally more: no tensor is hidden, none is shared by the rows."""
    model = Decoder(COMBINATIONS[name]).initialise(torch.Generator().manual_seed(1)).freeze()
    cache = model.prefill([list(range(4, 24))])[1]
    assert all(cache_bytes(layer) > 0 for layer in cache.layers)
    one, three = (cache_bytes(cache.select(torch.zeros(rows, dtype=torch.int64)).layers) for rows in (1, 3))
    assert three == 3 * one


def test_a_dense_cache_grows_by_a_key_and_a_value_a_layer_and_the_hybrids_hardly():
    dense, hybrid = ([at_context(job(model), context) for context in (32, 64)] for model in (DENSE, MODEL))
    a_token = MODEL.layers * 2 * MODEL.width * 4  # float32
    assert [row["cache_bytes"] for row in dense] == [32 * a_token, 64 * a_token]
    assert hybrid[0]["cache_bytes"] == hybrid[1]["cache_bytes"]  # both have room for the recipe's own context
    for row in (*dense, *hybrid):
        assert all(row[name] > 0 for name in ("decode_seconds", "prefill_seconds", "train_seconds", "peak_mib"))


def test_each_context_is_measured_in_a_process_of_its_own(tmp_path):
    receipt = measure(job(DENSE), tmp_path / "costs.json")
    measured = json.loads((tmp_path / "costs.json").read_text())
    assert [row["context"] for row in measured["contexts"]] == [32, 64]
    assert [row["cache_bytes_per_token"] for row in measured["contexts"]] == [MODEL.layers * 2 * MODEL.width * 4] * 2
    assert all(measured[what].keys() == {"tokens_per_second", "efficiency"} for what in ("pretrain_step", "decode"))
    assert receipt["threads"] == 1


def test_a_process_that_dies_is_one_sentence():
    with pytest.raises(ValueError, match="the process that measured a context of 32 tokens has died"):
        alone(job(DENSE), 32, die)


def die():
    raise SystemExit(9)


def test_costs_are_measured_on_one_cpu_thread_wherever_a_recipe_trains():
    recipe = Recipe(execution=ExecutionRecipe(device="cuda", precision="bf16", threads=4))
    assert CostsJob.of(recipe, 1).execution == ExecutionRecipe(device="cpu", precision="bf16", threads=1)
