"""What training does to a faithful model beside its gradients: the indexers' own loss, their dense warm-up, the routers' bias."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.model.indexer import Indexer
from glint.model.layout import Indexing, Layout
from glint.train.pretrain import Pretrainer, pretrain
from tests.mechanisms.test_whole import ids
from tests.mechanisms.weights import gradients, randomise, recipe
from tests.train.tiny import metrics, pretrain_job, write_corpus

SMALL = recipe(width=32, heads=2, visible=8, pool=4, query_rank=16, kv_rank=8, expert_hidden=16, ffn_hidden=32, context=160, init_std=0.1)
INDEXER = {f"blocks.3.{name}" for name in Indexer(SMALL).parameters()}
ROUTED = [f"blocks.{layer}.router_bias" for layer in (1, 2, 3)]
LAYOUT = Layout((40, 7, 33), prompt=9)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a corpus; return its tokens."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))[1]


def run(tokens: Path, folder: Path, **changes: Any) -> list[dict[str, Any]]:
    """Pretrain the small model; return its metrics."""
    pretrain(pretrain_job(**changes).model_copy(update={"model": SMALL}), tokens, folder / "out", folder / "state", save_every=0)
    return metrics(folder / "out")


def trainer(tokens: Path, steps: int, **changes: Any) -> Pretrainer:
    """Return the small model after so many steps."""
    begun = Pretrainer(pretrain_job(steps=9, **changes).model_copy(update={"model": SMALL}), tokens)
    for _ in range(steps):
        begun.advance()
    return begun


def losses(model: Decoder, *, dense: bool) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of some tokens, and the divergence."""
    inputs = ids(LAYOUT.tokens)
    hidden = model(inputs, LAYOUT, indexing=Indexing(dense, []))
    return cross_entropy(model.logits(hidden.final_ND), inputs.roll(-1)), hidden.divergence


@pytest.mark.parametrize("dense", [True, False])
def test_the_indexers_loss_and_the_models_share_no_parameter(dense: bool) -> None:
    model = randomise(Decoder(SMALL), 0)
    own = dict(model.named_parameters())
    reached = [{name for name, gradient in gradients(loss, own).items() if gradient.any()} for loss in losses(model, dense=dense)]
    assert reached == [set(own) - INDEXER, INDEXER]


def test_indexers_that_train_alone_bring_the_divergence_down() -> None:
    model = randomise(Decoder(SMALL), 0)
    optimiser = torch.optim.Adam([model.get_parameter(name) for name in INDEXER], lr=0.01)
    before = None
    for _ in range(30):
        _, divergence = losses(model, dense=True)
        before = divergence.item() if before is None else before
        optimiser.zero_grad()
        divergence.backward()
        optimiser.step()
    assert before is not None
    assert losses(model, dense=True)[1] < before / 2


def test_without_an_indexer_there_is_nothing_to_diverge() -> None:
    model = randomise(Decoder(recipe(sparse="dense")), 0)
    assert losses(model, dense=False)[1].item() == 0


def test_pretraining_attends_to_everything_at_first_and_then_to_what_is_chosen(tmp_path: Path, tokens: Path) -> None:
    runs = [run(tokens, tmp_path / str(dense), steps=4, dense_steps=dense) for dense in (0, 2, 4)]
    sparse, both, dense = ([record["loss"] for record in records] for records in runs)
    assert both[:2] == dense[:2]
    assert [one == other for one, other in zip(both[2:], dense[2:], strict=True)] == [False, False]
    assert both[0] != sparse[0]
    assert all(record["divergence"] > 0 for records in runs for record in records)


def test_pretraining_trains_the_indexers_in_either_form(tokens: Path) -> None:
    for dense_steps in (0, 9):
        begun = trainer(tokens, 0, dense_steps=dense_steps)
        before = {name: begun.model.get_parameter(name).clone() for name in INDEXER}
        begun.advance()
        assert not any(torch.equal(begun.model.get_parameter(name), tensor) for name, tensor in before.items())


def test_pretraining_moves_the_bias_of_every_router_towards_equal_load(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usages: list[Tensor] = []
    balance = Decoder.balance

    def watched(model: Decoder, usage_LE: Tensor) -> None:
        usages.append(usage_LE)
        balance(model, usage_LE)

    monkeypatch.setattr(Decoder, "balance", watched)
    biases = dict(trainer(tokens, 1).model.named_buffers())
    assert sorted(biases) == ROUTED
    (usage_LE,) = usages
    assert torch.allclose(torch.stack([biases[name] for name in ROUTED]), 0.001 * torch.sign(1 / SMALL.experts - usage_LE))
    assert (usage_LE != 1 / SMALL.experts).any(1).all()


def test_the_bias_is_in_the_checkpoint_and_in_the_resumable_state(tmp_path: Path, tokens: Path) -> None:
    begun, fresh = trainer(tokens, 2), trainer(tokens, 0)
    checkpoint.save(begun.model, tmp_path)
    loaded = checkpoint.load([tmp_path], torch.device("cpu"), torch.float32)
    fresh.restore(begun.state())
    for name, bias_E in begun.model.named_buffers():
        assert bias_E.any()
        for other in (loaded, fresh.model):
            assert torch.equal(other.get_buffer(name), bias_E)


def test_resuming_ends_with_the_same_bits(tmp_path: Path, tokens: Path) -> None:
    whole = run(tokens, tmp_path / "whole", steps=4, dense_steps=3)
    run(tokens, tmp_path / "parts", steps=2, dense_steps=3)
    assert run(tokens, tmp_path / "parts", steps=4, dense_steps=3) == whole
    ends = [load_file(tmp_path / name / "out/step-0004/model.safetensors") for name in ("whole", "parts")]
    assert ends[0].keys() == ends[1].keys() >= set(ROUTED)
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())
