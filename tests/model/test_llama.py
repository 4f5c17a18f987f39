"""The dense model is the library's Llama: counted by hand, equal in logits and gradients, exported and read back."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from glint.check import spread
from glint.config.model import DENSE, ModelRecipe
from glint.export import export, folders, library_tensors, llama_config
from glint.generate import generate
from glint.model import checkpoint
from glint.model.decoder import Decoder, count_parameters
from glint.model.layout import Layout
from tests.model.shapes import LLAMA
from tests.reference.agreement import relative_error

SHAPES = {
    "tied": ModelRecipe.model_validate(LLAMA | {"norm_epsilon": 0.01, "rope_base": 100.0}),
    "untied": ModelRecipe.model_validate(LLAMA | {"tied": False, "ffn_hidden": 20, "heads": 4}),
    "two layers of the preset": DENSE.model_copy(update={"layers": 2}),
}


@pytest.fixture(scope="module")
def transformers() -> Any:
    """Return the library, which takes seconds to import."""
    return importlib.import_module("transformers")


def library(transformers: Any, model: Decoder) -> Any:
    """Return the library's model with our weights."""
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama_config(model.recipe))).float().eval()
    missing, unexpected = theirs.load_state_dict(library_tensors(model.state_dict(), "model."), strict=False)
    assert (missing, unexpected) == (["lm_head.weight"] if model.recipe.tied else [], [])
    return theirs


@pytest.mark.parametrize(("vocabulary", "count"), [(256, 25_026_048), (260, 25_028_096)])
def test_parameters_are_those_counted_by_hand(transformers: Any, vocabulary: int, count: int) -> None:
    recipe = DENSE.model_copy(update={"vocabulary": vocabulary})
    assert vocabulary * 512 + 7 * (4 * 512**2 + 3 * 512 * 1632 + 2 * 512) + 512 == count
    with torch.device("meta"):
        model, theirs = Decoder(recipe), transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama_config(recipe)))
    assert count_parameters(model) == count_parameters(model, active=True) == count
    assert sum(parameter.numel() for parameter in theirs.parameters()) == count


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_gradients(transformers: Any, shape: str) -> None:
    model = spread(SHAPES[shape])
    theirs = library(transformers, model)
    # The library gives no gradient to the input embedding of pad, which never stands in an input; so it stands in none here.
    ids = torch.randint(1, model.recipe.vocabulary, (2, 33), generator=torch.Generator().manual_seed(2))
    logits, known = model.logits(model(ids.flatten(), Layout((33, 33))).final_ND), theirs(ids, use_cache=False).logits.flatten(0, 1)
    assert (logits - known).abs().max() < 1e-4
    targets = (ids.flatten() * 7 + 1) % model.recipe.vocabulary
    cross_entropy(logits, targets).backward()
    cross_entropy(known, targets).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert len(gradients) == len(list(model.parameters()))
    for name, gradient in library_tensors(gradients, "model.").items():
        wanted = theirs.get_parameter(name).grad
        assert relative_error(gradient, wanted) < 1e-3, name


@pytest.mark.parametrize("shape", ["tied", "untied"])
def test_the_library_reads_the_export_and_writes_the_same_bytes(transformers: Any, tmp_path: Path, shape: str) -> None:
    model = spread(SHAPES[shape])
    checkpoint.save(model, tmp_path / "ours")
    command = [sys.executable, "-m", "glint.export", str(tmp_path / "ours"), str(tmp_path / "theirs")]
    subprocess.run(command, check=True)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "theirs")
    assert isinstance(theirs, transformers.LlamaForCausalLM)
    for prompt in ([1, 104, 105], [1], [1, 200, 4, 77, 90]):
        ((ours,),) = generate(model, [prompt], None, 24)
        written = theirs.generate(torch.tensor([prompt]), max_new_tokens=24)
        assert written[0, len(prompt) :].tolist() == ours.ids


def test_what_rl_has_trained_is_laid_over(transformers: Any, tmp_path: Path) -> None:
    model = spread(SHAPES["tied"])
    checkpoint.save(model, tmp_path / "base")
    policy = checkpoint.load([tmp_path / "base"], torch.device("cpu"), torch.float32).freeze("last_block_and_head")
    with torch.no_grad():
        policy.final_norm.mul_(2)
    checkpoint.save(policy, tmp_path / "trained", base=tmp_path / "base")
    command = [sys.executable, "-m", "glint.export", str(tmp_path / "base"), str(tmp_path / "out"), "--trained", str(tmp_path / "trained")]
    subprocess.run(command, check=True)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(theirs.get_parameter("model.norm.weight"), policy.final_norm)
    assert json.loads((tmp_path / "out/config.json").read_text())["num_hidden_layers"] == model.recipe.layers


def test_the_base_of_what_rl_has_trained_is_found_by_its_hash_or_both_are_asked_for(tmp_path: Path) -> None:
    base, trained = tmp_path / "pretrain/0a/step-0001", tmp_path / "rl/1b/groups-002"
    model = spread(SHAPES["tied"])
    checkpoint.save(model, base)
    checkpoint.save(model.freeze("last_block"), trained, base=base)
    assert folders(base, None) == [base]
    assert folders(trained, None) == [base, trained]
    base.parents[1].rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="so name their folder as CHECKPOINT, and this one with --trained"):
        folders(trained, None)


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        (
            {"linear": "elu", "ffn": "moe"},
            "it is not dense, since linear is elu, not none, ffn is moe, not dense; it is not faithful, since linear is elu, not kda, "
            "sparse is dense, not indexed, residual is single, not mhc, router is softmax, not sigmoid",
        ),
        (
            {"gate_limit": 10.0},
            "it is not dense, since gate_limit is 10.0, not None; it is not faithful, since linear is none, not kda, "
            "sparse is dense, not indexed, residual is single, not mhc, ffn is dense, not moe, router is softmax, not sigmoid",
        ),
    ],
)
def test_another_model_is_refused_in_one_sentence_and_nothing_is_written(tmp_path: Path, changes: dict[str, Any], reasons: str) -> None:
    with pytest.raises(ValueError, match="exported") as refused:
        export(Decoder(ModelRecipe.model_validate(LLAMA | changes)), tmp_path / "out")
    assert str(refused.value) == f"only a dense or a faithful model can be exported, the library has no class for others: {reasons}"
    assert not (tmp_path / "out").exists()
