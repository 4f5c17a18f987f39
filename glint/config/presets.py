"""A model by the name of a preset: `model: dense`, or `model: {preset: dense, ffn_hidden: 1700}` with further keys laid over it."""

from typing import Any

from glint.config.errors import unknown
from glint.config.model import PRESETS


def written_out(given: Any) -> Any:
    """Return the keys of a model with the values of the preset that they name laid under them; without one, they come back as they are.

    `given` is the name alone, or a mapping with the key `preset`. Raises ValueError for a name that is none.
    """
    keys = {"preset": given} if isinstance(given, str) else given
    if not isinstance(keys, dict) or "preset" not in keys:
        return given
    name = str(keys["preset"])
    if name not in PRESETS:
        raise ValueError(unknown("preset", name, PRESETS))
    return PRESETS[name].model_dump(mode="json") | {key: value for key, value in keys.items() if key != "preset"}
