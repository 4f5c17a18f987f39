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

ARCHITECTURE: dict[str, Any] = {
    "question": "Which structure pays?",
    "kind": "architecture",
    "arms": {"hybrid": {}, "single": {"model": {"residual": "single"}}, "dense": {"model": "dense", "several_changes": "another model"}},
    "seeds": [1, 2],
    "analysis": {
        "contrasts": {
            "streams": {"arm": "hybrid", "against": "single", "steps": [100, 160]},
            "flops": {"arm": "hybrid", "against": "dense", "steps": [160], "against_steps": [63]},
        }
    },
}
"""An architecture study of three arms at the default 160 steps; 63 is the step at which a dense model has used the FLOPs of the hybrid."""

NAMES: dict[str, Any] = {
    "distances": [8, 16],
    "questions": 4,
    "unasked": 1,
    "letters": 1,
    "nearest": 4,
    "stages": [{"length": 48, "batch": 2, "steps": 4}, {"length": 96, "batch": 2, "steps": 2}],
    "held_out": 12,
    "checkpoints": [0, 4, 6],
}
"""A recall recipe of two stages and six steps in all."""

RECALL: dict[str, Any] = {
    "question": "Which model recalls a name?",
    "kind": "recall",
    "recipe": "names",
    "arms": {"hybrid": {}, "single": {"model": {"residual": "single"}}},
    "seeds": [1, 2],
    "analysis": {"contrasts": {"streams": {"arm": "hybrid", "against": "single", "steps": [4, 6]}}},
}
"""A recall study of two arms; it needs a recipe `names` whose section `recall` is `NAMES`."""
