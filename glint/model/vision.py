"""Two paths by which an image reaches the language model: a vision encoder with a projector, and patches projected straight.

Shape suffixes: B images, P patches, T tokens of an image, X values of a patch or of merged patches, E vision width, H heads,
K size of a head, D width and V vocabulary of the language model, S tokens of a row.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention, silu

from glint.config.vision import IMAGE_TOKENS, SIDE, VisionRecipe
from glint.model.decoder import Decoder, count_parameters
from glint.model.layout import Layout
from glint.model.primitives import rms_norm

CHANNELS = 3
SMALL, LARGE = 4, 8
"""Pixels of a patch's edge: what the encoder reads, and what is projected straight."""
GRID, MERGED = SIDE // SMALL, 2
"""Patches and, along an edge, how many are merged to one token."""
EPSILON = 1e-6
IMAGE_IDS = 3
"""Ids above the language model's own: the start of an image, the place of one of its tokens, its end."""


def patches(images_BHWC: Tensor, size: int) -> Tensor:
    """Return the patches [B, P, size * size * 3] in rows from the top left; each holds its pixels in rows, channels last."""
    return _squares(images_BHWC, size).flatten(-3)


def _squares(grid_BHWC: Tensor, size: int) -> Tensor:
    """Return squares of neighbours [B, P, size, size, C] of a grid [B, H, W, C]."""
    count, height, width, channels = grid_BHWC.shape
    rows = grid_BHWC.reshape(count, height // size, size, width // size, size, channels)
    return rows.transpose(2, 3).flatten(1, 2)


class RMSNorm(nn.Module):
    """The language model's RMSNorm, over the last axis of any shape, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised `x`."""
        return rms_norm(x.reshape(-1, x.shape[-1]), self.weight, EPSILON, torch.float32).view(x.shape)


class GatedMLP(nn.Module):
    """down(silu(gate) * value), of which one map gives gate and value (Shazeer, 2020: SwiGLU)."""

    def __init__(self, width: int, hidden: int, *, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * hidden, bias)
        self.down = nn.Linear(hidden, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, shaped as `x`."""
        gate, value = self.up(x).chunk(2, -1)
        result: Tensor = self.down(silu(gate) * value)
        return result


class VisionBlock(nn.Module):
    """A pre-norm block in which every patch attends to all; queries and keys are normalised a head (Dehghani et al., 2023: ViT-22B)."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.q_norm = RMSNorm(width // heads)
        self.k_norm = RMSNorm(width // heads)
        self.out = nn.Linear(width, width)
        self.mlp_norm = RMSNorm(width)
        self.mlp = GatedMLP(width, hidden, bias=True)

    def forward(self, x_BPE: Tensor) -> Tensor:
        """Return the block's output [B, P, E]."""
        h_BPE = x_BPE + self.out(self.attend(self.attention_norm(x_BPE)))
        result: Tensor = h_BPE + self.mlp(self.mlp_norm(h_BPE))
        return result

    def attend(self, x_BPE: Tensor) -> Tensor:
        """Return softmax attention over all patches, both ways, scale K^-0.5."""
        q_BHPK, k_BHPK, v_BHPK = self.qkv(x_BPE).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended_BHPK = scaled_dot_product_attention(self.q_norm(q_BHPK), self.k_norm(k_BHPK), v_BHPK)
        return attended_BHPK.transpose(1, 2).flatten(2)


class Projector(nn.Module):
    """Gated projector in the language model's width: linear map, LayerNorm, GELU, gated MLP."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.mlp = GatedMLP(width, hidden, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the projected tokens [B, T, D]."""
        result: Tensor = self.mlp(gelu(self.norm(self.linear(x_BTD))))
        return result


class FaithfulPath(nn.Module):
    """4x4 patches, bidirectional blocks, 2x2 neighbours merged by a learned map, projector."""

    boundaries = True
    """Whether an image stands between a start and an end id."""

    def __init__(self, recipe: VisionRecipe, width: int) -> None:
        super().__init__()
        self.patch = nn.Linear(SMALL * SMALL * CHANNELS, recipe.width)
        self.positions_PE = nn.Parameter(torch.empty(GRID * GRID, recipe.width))
        self.blocks = nn.ModuleList(VisionBlock(recipe.width, recipe.heads, recipe.mlp_hidden) for _ in range(recipe.layers))
        self.norm = RMSNorm(recipe.width)
        self.merge = nn.Linear(MERGED * MERGED * recipe.width, width)
        self.projector = Projector(width, recipe.projector_hidden)

    def forward(self, images_BHWC: Tensor) -> Tensor:
        """Return an image's tokens [B, T, D]."""
        x_BPE = self.patch(patches(images_BHWC, SMALL)) + self.positions_PE
        for block in self.blocks:
            x_BPE = block(x_BPE)
        merged_BTX = _squares(self.norm(x_BPE).unflatten(1, (GRID, GRID)), MERGED).flatten(-3)
        result: Tensor = self.projector(self.merge(merged_BTX))
        return result


class DirectPatch(nn.Module):
    """The baseline: 8x8 patches projected to the language model's width, with positions and one vector that says "image"."""

    boundaries = False
    """Whether an image stands between a start and an end id."""

    def __init__(self, recipe: VisionRecipe, width: int) -> None:  # noqa: ARG002 - both paths are made alike
        super().__init__()
        self.patch = nn.Linear(LARGE * LARGE * CHANNELS, width)
        self.positions_TD = nn.Parameter(torch.empty(IMAGE_TOKENS, width))
        self.modality_D = nn.Parameter(torch.empty(width))

    def forward(self, images_BHWC: Tensor) -> Tensor:
        """Return an image's tokens [B, T, D]."""
        result: Tensor = self.patch(patches(images_BHWC, LARGE)) + self.positions_TD + self.modality_D
        return result


PATHS: dict[str, type[FaithfulPath] | type[DirectPatch]] = {"faithful": FaithfulPath, "direct_patch": DirectPatch}


def with_image_ids(model: Decoder, generator: torch.Generator) -> Decoder:
    """Return `model` with the rows of `IMAGE_IDS` more ids in embedding and head, drawn from N(0, init_std), and all else kept."""
    recipe = model.recipe
    grown = Decoder(recipe.model_copy(update={"vocabulary": recipe.vocabulary + IMAGE_IDS}), model.dtype)
    state = model.state_dict()
    for name in dict.fromkeys(("embedding", model.head_name)):
        rows_VD = torch.empty(IMAGE_IDS, recipe.width).normal_(0, recipe.init_std, generator=generator)
        state[name] = torch.cat([state[name], rows_VD.to(state[name].device)])
    grown.load_state_dict(state)
    return grown


class VisionLanguageModel(nn.Module):
    """A path for images, and the language model that answers."""

    def __init__(self, recipe: VisionRecipe, decoder: Decoder) -> None:
        """`decoder` has the image ids as its last ones."""
        super().__init__()
        self.path = PATHS[recipe.path](recipe, decoder.recipe.width)
        self.decoder = decoder

    def initialise(self, generator: torch.Generator) -> "VisionLanguageModel":
        """Draw the path's maps as PyTorch draws them, from U(-r, r) with r = inputs^-0.5, positions and modality from N(0, init_std).

        The decoder stays as it is. N(0, 0.02) for the maps as well would leave little of the image behind so many narrow ones.
        """
        std = self.decoder.recipe.init_std
        for parameter in self.path.parameters(recurse=False):
            nn.init.normal_(parameter, 0, std, generator)
        for module in self.path.modules():
            if isinstance(module, nn.Linear):
                bound = module.in_features**-0.5
                for parameter in module.parameters():
                    nn.init.uniform_(parameter, -bound, bound, generator)
        return self

    def row(self, prompt: list[int]) -> list[int]:
        """Return the ids of one row: the first of `prompt` (bos), the places of an image's tokens, then the rest of the prompt.

        Where the path has boundaries, their ids stand around the places.
        """
        start, place, end = range(self.decoder.recipe.vocabulary - IMAGE_IDS, self.decoder.recipe.vocabulary)
        image = [place] * IMAGE_TOKENS
        bos, *text = prompt
        return [bos, start, *image, end, *text] if self.path.boundaries else [bos, *image, *text]

    def forward(self, images_BHWC: Tensor, row: list[int]) -> Tensor:
        """Return the logits [B, V] of the token after `row`, whose places the image's tokens take."""
        count = len(images_BHWC)
        layout = Layout((len(row),) * count)
        ids_N = torch.tensor(row, device=images_BHWC.device).repeat(count)
        place_N = ids_N == self.decoder.recipe.vocabulary - IMAGE_IDS + 1
        embedded_ND = self.decoder.embed(ids_N).masked_scatter(place_N[:, None], self.path(images_BHWC))
        final_ND = self.decoder.forward_embedded(embedded_ND, layout).final_ND
        return self.decoder.logits(final_ND[layout.last_tokens])


def count_all(model: VisionLanguageModel, *, active: bool = False) -> int:
    """Return the number of parameters, of the language model all or those that one token uses."""
    return sum(parameter.numel() for parameter in model.path.parameters()) + count_parameters(model.decoder, active=active)
