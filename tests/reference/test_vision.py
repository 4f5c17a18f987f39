"""The paths of images, and the decoder's opening for them, against float64 formulas and PyTorch's own modules."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from glint import device
from glint.config.model import ModelRecipe
from glint.config.vision import VisionRecipe
from glint.model.decoder import Decoder, count_parameters
from glint.model.layout import Layout
from glint.model.vision import FaithfulPath, VisionBlock, VisionLanguageModel, count_all, patches, with_image_ids
from tests.reference.agreement import relative_error

MINI = ModelRecipe(
    width=32, layers=1, heads=4, experts=4, top_k=2, expert_hidden=48, streams=2, window=8, stride=8, context=64
)  # fmt: skip
PROMPT = [1, 70, 71, 72]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count=3):
    return torch.rand(count, 32, 32, 3, generator=generator(1))


def model(path="faithful", recipe=MINI):
    decoder = with_image_ids(Decoder(recipe).initialise(generator(2)), generator(3))
    return VisionLanguageModel(VisionRecipe(path=path), decoder).initialise(generator(4))


@pytest.mark.parametrize(("path", "published", "vision"), [("faithful", 60924, 17912 + 7232), ("direct_patch", 42500, 6720)])
def test_parameters_are_the_published_ones(path, published, vision):
    built = model(path)
    assert count_all(built) == published
    assert count_parameters(built.decoder) == published - vision == 35780
    assert count_all(built) - count_all(built, active=True) == 2 * 3 * 48 * 32  # two idle experts of one layer


def test_patches_are_those_of_a_convolution():
    linear = nn.Linear(48, 5)
    kernel = linear.weight.view(5, 4, 4, 3).permute(0, 3, 1, 2)
    convolved = functional.conv2d(images().permute(0, 3, 1, 2), kernel, linear.bias, stride=4)
    torch.testing.assert_close(linear(patches(images(), 4)), convolved.flatten(2).transpose(1, 2))


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def block_by_formula(weights: dict[str, Tensor], x: Tensor, heads: int) -> Tensor:
    """One block in float64, every patch and head in a loop of its own."""
    normed = rms(x, weights["attention_norm.weight"])
    q, k, v = (normed @ weights["qkv.weight"].T + weights["qkv.bias"]).chunk(3, -1)
    size = x.shape[-1] // heads
    parts = []
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        queries, keys = rms(q[:, own], weights["q_norm.weight"]), rms(k[:, own], weights["k_norm.weight"])
        rows = [torch.softmax(torch.stack([query @ key / size**0.5 for key in keys]), 0) @ v[:, own] for query in queries]
        parts.append(torch.stack(rows))
    h = x + torch.cat(parts, -1) @ weights["out.weight"].T + weights["out.bias"]
    gate, value = (rms(h, weights["mlp_norm.weight"]) @ weights["mlp.up.weight"].T + weights["mlp.up.bias"]).chunk(2, -1)
    return h + (gate * torch.sigmoid(gate) * value) @ weights["mlp.down.weight"].T + weights["mlp.down.bias"]


def exact(module: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().double().requires_grad_() for name, parameter in module.named_parameters()}


def test_a_block_is_its_formula_and_so_are_its_gradients():
    block = VisionBlock(24, 4, 48)
    for parameter in block.parameters():
        nn.init.normal_(parameter, 0.3, 0.5, generator())
    x = torch.randn(9, 24, generator=generator(5))
    weights = exact(block)
    expected = block_by_formula(weights, x.double(), 4)
    result = block(x[None])[0]
    assert relative_error(result, expected) < 1e-5
    direction = torch.randn(9, 24, generator=generator(6))
    (result * direction).sum().backward()
    (expected * direction.double()).sum().backward()
    for name, parameter in block.named_parameters():
        assert parameter.grad is not None
        known = weights[name].grad
        assert known is not None
        assert relative_error(parameter.grad, known) < 1e-4, name


def test_attention_without_norms_is_that_of_pytorch():
    block = VisionBlock(24, 4, 48)
    whole = nn.MultiheadAttention(24, 4, batch_first=True)
    whole.load_state_dict(
        {
            "in_proj_weight": block.qkv.weight,
            "in_proj_bias": block.qkv.bias,
            "out_proj.weight": block.out.weight,
            "out_proj.bias": block.out.bias,
        }
    )
    block.q_norm = block.k_norm = nn.Identity()  # type: ignore[assignment]
    x = torch.randn(2, 9, 24, generator=generator(5))
    torch.testing.assert_close(block.out(block.attend(x)), whole(x, x, x, need_weights=False)[0])


def test_every_patch_sees_every_other():
    block = VisionBlock(24, 4, 48)
    x = torch.randn(1, 64, 24, generator=generator(5), requires_grad=True)
    for place in (0, 63):
        (seen,) = torch.autograd.grad(block(x)[0, place].sum(), x)
        assert (seen[0].abs().sum(-1) > 0).all()


def test_the_faithful_path_is_its_formula():
    path = model().path
    assert isinstance(path, FaithfulPath)
    weights = exact(path)
    image = images(1)[0]
    squares = [image[r : r + 4, c : c + 4].flatten() for r in range(0, 32, 4) for c in range(0, 32, 4)]
    x = torch.stack(squares).double() @ weights["patch.weight"].T + weights["patch.bias"] + weights["positions_PE"]
    for index in range(2):
        front = f"blocks.{index}."
        x = block_by_formula({name.removeprefix(front): w for name, w in weights.items() if name.startswith(front)}, x, 4)
    x = rms(x, weights["norm.weight"]).view(8, 8, 24)
    merged = [torch.cat([x[r, c], x[r, c + 1], x[r + 1, c], x[r + 1, c + 1]]) for r in range(0, 8, 2) for c in range(0, 8, 2)]
    tokens = (torch.stack(merged) @ weights["merge.weight"].T + weights["merge.bias"]) @ weights["projector.linear.weight"].T
    tokens = functional.layer_norm(tokens, (32,), weights["projector.norm.weight"], weights["projector.norm.bias"])
    tokens = 0.5 * tokens * (1 + torch.erf(tokens / 2**0.5))
    gate, value = (tokens @ weights["projector.mlp.up.weight"].T).chunk(2, -1)
    tokens = (gate * torch.sigmoid(gate) * value) @ weights["projector.mlp.down.weight"].T
    assert relative_error(path(images(1))[0], tokens) < 1e-5


def test_the_direct_path_is_its_formula():
    path = model("direct_patch").path
    weights = exact(path)
    image = images(1)[0]
    squares = torch.stack([image[r : r + 8, c : c + 8].flatten() for r in range(0, 32, 8) for c in range(0, 32, 8)]).double()
    tokens = squares @ weights["patch.weight"].T + weights["patch.bias"] + weights["positions_TD"] + weights["modality_D"]
    assert relative_error(path(images(1))[0], tokens) < 1e-6


@pytest.mark.parametrize(
    ("path", "ids"), [("faithful", [1, 260, *[261] * 16, 262, 70, 71, 72]), ("direct_patch", [1, *[261] * 16, 70, 71, 72])]
)
def test_a_row_has_sixteen_places_and_boundaries_on_the_faithful_path_alone(path, ids):
    assert model(path).row(PROMPT) == ids


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("path", ["faithful", "direct_patch"])
def test_the_answer_is_that_of_a_decoder_which_reads_the_images_tokens_as_rows_of_its_matrix(monkeypatch, path, compiled):
    """Enlarge the input matrix by an image's own tokens, ask for them by id, and cut the logits back."""
    monkeypatch.setattr(device, "COMPILED_FOR", {"cpu"} if compiled else set())
    built = model(path, MINI.model_copy(update={"layers": 4}))
    row = built.row(PROMPT)
    logits = built(images(), row)
    for own, tokens in zip(logits, built.path(images()), strict=True):
        plain = Decoder(built.decoder.recipe.model_copy(update={"vocabulary": 263 + 16}))
        state = built.decoder.state_dict()
        plain.load_state_dict(state | {"embedding": torch.cat([state["embedding"], tokens])})
        places = iter(range(263, 263 + 16))
        ids = torch.tensor([next(places) if token == 261 else token for token in row])
        expected = plain.logits(plain(ids, Layout((len(row),))).final_ND)[-1, :263]
        torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", ["faithful", "direct_patch"])
def test_compiled_loops_and_formulas_give_the_same_gradients(monkeypatch, path):
    found = []
    for where in ({"cpu"}, set()):
        monkeypatch.setattr(device, "COMPILED_FOR", where)
        built = model(path, MINI.model_copy(update={"layers": 4}))
        functional.cross_entropy(built(images(), built.row(PROMPT)), torch.tensor([52, 53, 54])).backward()
        found.append({name: parameter.grad for name, parameter in built.named_parameters() if parameter.grad is not None})
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    for name in ours:
        if theirs[name].norm() > 1e-7:
            assert relative_error(ours[name], theirs[name]) < 1e-3, name


def test_text_reads_the_same_bits_through_either_door():
    decoder = Decoder(MINI).initialise(generator(2))
    ids, layout = torch.tensor([1, 70, 71, 72, 1, 80, 81]), Layout((4, 3))
    one, other = decoder(ids, layout), decoder.forward_embedded(decoder.embed(ids), layout)
    assert torch.equal(one.final_ND, other.final_ND)
    assert torch.equal(one.usage_LE, other.usage_LE)


def test_image_ids_add_rows_and_change_no_text():
    decoder = Decoder(MINI).initialise(generator(2))
    grown = with_image_ids(decoder, generator(3))
    assert grown.recipe.vocabulary == 263
    assert torch.equal(grown.embedding[:260], decoder.embedding)
    assert grown.embedding[260:].std().item() == pytest.approx(0.02, rel=0.3)
    ids, layout = torch.tensor([1, 70, 71]), Layout((3,))
    before, after = (one.logits(one(ids, layout).final_ND) for one in (decoder, grown))
    torch.testing.assert_close(before, after[:, :260])


def test_a_frozen_language_model_passes_gradients_to_the_path_and_keeps_its_own():
    built = model("faithful", MINI.model_copy(update={"layers": 4}))
    built.decoder.freeze("last_block_and_head")
    kept = copy.deepcopy(built.decoder.state_dict())
    functional.cross_entropy(built(images(), built.row(PROMPT)), torch.tensor([52, 53, 54])).backward()
    trained = {name for name, parameter in built.named_parameters() if parameter.grad is not None}
    assert all(parameter.grad is not None and parameter.grad.norm() > 0 for parameter in built.path.parameters() if parameter.dim() > 1)
    assert {name.removeprefix("decoder.") for name in trained if name.startswith("decoder.")} == {
        name for name in kept if name.startswith(("blocks.3.", "final_norm", "embedding"))
    }
