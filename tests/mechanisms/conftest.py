"""The library's implementation of the real mechanisms, which only tests import."""

from typing import Any

import pytest

MODULE = "transformers.models.glm5_next.modeling_glm5_next"


@pytest.fixture(scope="session")
def library() -> Any:
    """Return the library's module of the real model; where the library is not installed, skip."""
    return pytest.importorskip(MODULE, reason=f"{MODULE} is not installed: the comparison with the library is skipped")
