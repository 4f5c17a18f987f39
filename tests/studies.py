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
