"""Studies that tests of several floors load."""

from typing import Any

ORDER: dict[str, Any] = {
    "question": "Does the order matter?",
    "kind": "pretraining",
    "recipe": "mini",
    "arms": {"diverse": {}, "blocked": {"expressions": {"order": "blocked"}}},
    "seeds": [1, 2],
    "analysis": {"contrasts": {"order": {"arm": "diverse", "against": "blocked", "steps": [200]}}},
}
"""A pretraining study of two arms; it needs a recipe `mini` of 200 steps."""

VISION: dict[str, Any] = {
    "question": "Which path is better?",
    "kind": "vision",
    "arms": {"faithful": {}, "direct_patch": {"vision": {"path": "direct_patch"}}},
    "seeds": [1, 2],
    "analysis": {"contrasts": {"path": {"arm": "faithful", "against": "direct_patch", "steps": [120]}}},
}
"""A vision study of two arms at the default budget of 120 steps."""
