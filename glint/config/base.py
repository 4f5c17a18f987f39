"""What every recipe shares: unknown keys are errors, values are immutable, and a digest names a recipe."""

import hashlib
import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """A recipe node: no unknown keys, no silent coercion of strings to numbers, no mutation."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True, allow_inf_nan=False)


Positive = Annotated[int, Field(gt=0, le=10**9)]
Natural = Annotated[int, Field(ge=0, le=10**9)]
Rate = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w-]*$", max_length=64)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Slice(Strict):
    """The part of a recipe that one job reads."""

    seed: Seed
    """Training seed of the job."""


def canonical_json(node: BaseModel) -> str:
    """One text for one meaning: every default filled in, keys sorted, no white space."""
    return json.dumps(node.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


def digest(node: BaseModel, length: int = 12) -> str:
    """Return the first `length` hex digits of the SHA-256 of the canonical text of `node`."""
    return hashlib.sha256(canonical_json(node).encode()).hexdigest()[:length]
