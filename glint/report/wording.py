"""How numbers are written, one form each for shares, differences, intervals, p values, counts and times; and mechanisms in words."""

import math

from glint.config.model import ModelRecipe

NARROW = "\u202f"
MINUS = "\u2212"
METRICS = {
    "greedy_pass1": "greedy answer passes",
    "sampled_exact": "sampled answers that pass",
    "cases_greedy": "hidden cases passed, greedy",
    "cases_sampled": "hidden cases passed, sampled",
    "invalid_sampled": "sampled answers that are no valid function",
    "byte_accuracy": "bytes predicted, the target given",
    "exact_expression": "expressions with every byte predicted",
    "executed": "written expressions that pass when run",
    "accuracy": "digits named",
    "log_prob": "log-probability of the digit, nats",
}

MECHANISMS = {
    ("linear", "elu"): "linear attention with the features of elu in three layers of four",
    ("linear", "kda"): "Kimi delta attention (linear attention that updates its memory by the delta rule)",
    ("linear", "none"): "no linear layers",
    ("sparse", "strided"): "strided attention (recent positions and some at equal distances)",
    ("sparse", "indexed"): "attention to the positions that an indexer chooses in pools",
    ("sparse", "dense"): "full attention to all positions",
    ("residual", "mixed"): "several residual streams",
    ("residual", "mhc"): "hyper-connections (residual streams mixed by weights of the token)",
    ("residual", "single"): "the usual single residual stream",
    ("ffn", "moe"): "a mixture of experts",
    ("ffn", "dense"): "one feed-forward network in place of experts",
    ("router", "softmax"): "a softmax router",
    ("router", "sigmoid"): "a sigmoid router (each expert is scored by itself)",
}
"""What a recipe's words for a mechanism mean, by key and value."""
LLAMA = {"linear": "none", "sparse": "dense", "residual": "single", "ffn": "dense"}
REAL = {"linear": "kda", "sparse": "indexed", "residual": "mhc", "router": "sigmoid"}
"""The real mechanisms: those of published large models."""
HYBRID = ModelRecipe()


def mechanisms(model: ModelRecipe, base: ModelRecipe = HYBRID) -> str:
    """Return in plain words by which mechanisms `model` differs from `base`; for the base itself, all that it is made of."""
    if made_of(model, LLAMA) and not made_of(base, LLAMA):
        return f"Llama-style: {MECHANISMS['sparse', 'dense']}, {MECHANISMS['residual', 'single']}, {MECHANISMS['ffn', 'dense']}"
    asked = {key: getattr(model, key) for key, _ in MECHANISMS if key != "router" or model.ffn == "moe"}
    others = {key: value for key, value in asked.items() if (key == "router" and base.ffn != "moe") or getattr(base, key) != value}
    phrases = [MECHANISMS[key, value] for key, value in (asked if model == base else others).items()]
    if model.dense_layers and (model == base or not base.dense_layers):
        phrases.append("no experts in the first layers")
    return ", ".join(phrases) or "the same mechanisms in other sizes"


def made_of(model: ModelRecipe, words: dict[str, str]) -> bool:
    """Return whether a model has all these mechanisms."""
    return all(getattr(model, key) == value for key, value in words.items())


def metric_name(metric: str) -> str:
    """Return a metric in words."""
    return METRICS.get(metric, f"solved by one of {metric.removeprefix('pass')} samples")


def share(value: float) -> str:
    """Return 0.5917 as 59.2 %."""
    return f"{100 * value:.1f}{NARROW}%".replace("-", MINUS)


def setting(value: float) -> str:
    """Return a share that somebody chose, 0.2, as 20 %."""
    return f"{100 * value:g}{NARROW}%"


def points(value: float) -> str:
    """Return a difference of shares, 0.425, as +42.5 points."""
    return f"{_signed(value)} points"


def interval(low: float, high: float, *, signed: bool = False) -> str:
    """Return both ends in percent or points; without them, what is missing."""
    if math.isnan(low):
        return "no interval"
    ends = [_signed(end) if signed else f"{100 * end:.1f}" for end in (low, high)]
    return f"[{ends[0]}, {ends[1]}]"


def nats(value: float, *, signed: bool = False) -> str:
    """Return a cross-entropy or a difference of two, with three digits."""
    return f"{value:{'+' if signed else ''}.3f}".replace("-", MINUS)


def nats_interval(low: float, high: float, *, signed: bool = False) -> str:
    """Return both ends in nats; without them, what is missing."""
    return "no interval" if math.isnan(low) else f"[{nats(low, signed=signed)}, {nats(high, signed=signed)}]"


def p_value(p: float, floor: float) -> str:
    """Return p with the smallest value that so few seeds can reach."""
    return f"{p:.3g} (smallest possible {floor:.3g})"


def whole(value: float) -> str:
    """Return 25730592 as 25,730,592; a part of a whole keeps one digit."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def count(value: float, of: float) -> str:
    """Return a count with its denominator, 15/24."""
    return f"{whole(value)}/{whole(of)}"


def seconds(value: float) -> str:
    """Return a duration as seconds, or above two minutes as minutes."""
    return f"{value:.1f}{NARROW}s" if value < 120 else f"{value / 60:.1f}{NARROW}min"


def thousandths(value: float) -> str:
    """Return a difference, 0.0123, as +12; one that rounds to nothing has no sign."""
    rounded = round(1000 * value)
    return f"{rounded:+d}".replace("-", MINUS) if rounded else "0"


def milliseconds(value: float) -> str:
    """Return a short time in seconds, 0.00123, as 1.23 (milliseconds)."""
    return f"{1000 * value:.3g}"


def tera(value: float) -> str:
    """Return 41230000000000 as 41.2 (units of 10^12)."""
    return f"{value / 1e12:.3g}"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", MINUS)
