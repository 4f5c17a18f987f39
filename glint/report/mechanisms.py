"""What a recipe says of its model in shapes and numbers that a slide can draw."""

from dataclasses import dataclass

from glint.config.model import ModelRecipe

LINEAR = ("elu", "kda")
SHOWN_WINDOWS = 4
"""Length of the text on the drawing of strided attention, in windows or strides, whichever is longer."""
SHOWN_DENSE = 64
"""Length of the text on the drawing of dense attention."""


@dataclass(frozen=True)
class Seen:
    """Which positions of a text of `length` tokens a layer that compares positions lets its last token see."""

    length: int
    window: int
    columns: tuple[int, ...]
    """Positions that every later token sees as well."""
    last: tuple[int, ...]
    """What the last token sees."""


def seen(recipe: ModelRecipe) -> Seen | None:
    """Return what strided or dense attention lets a token see; None where the content decides (indexed)."""
    if recipe.sparse == "indexed":
        return None
    if recipe.sparse == "dense":
        length = min(recipe.context, SHOWN_DENSE)
        return Seen(length, length, (), tuple(range(length)))
    length = min(recipe.context, SHOWN_WINDOWS * max(recipe.window, recipe.stride))
    last = tuple(place for place in range(length) if length - 1 - place < recipe.window or place % recipe.stride == 0)
    return Seen(length, recipe.window, tuple(range(0, length, recipe.stride)), last)


def rhythm(recipe: ModelRecipe) -> list[str]:
    """Return the kind of each layer's attention: `linear` or `sparse`."""
    return ["linear" if recipe.attention(layer) in LINEAR else "sparse" for layer in range(recipe.layers)]


def memory(recipe: ModelRecipe) -> list[tuple[int, int, int]]:
    """Return, at a quarter, half and all of the context: tokens read, numbers that a linear layer keeps, and that dense attention would.

    Linear attention keeps a matrix [K, K] a head, and elu the sum of its keys [K] beside; dense attention a key and a value of each token.
    """
    size = recipe.width // recipe.heads
    state = recipe.heads * size * (size + (recipe.linear == "elu"))
    return [(tokens, state, 2 * recipe.width * tokens) for tokens in (recipe.context // 4, recipe.context // 2, recipe.context)]
