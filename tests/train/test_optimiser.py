"""AdamW against PyTorch's class, bit for bit, and what a step may import."""

import io
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from glint.train.optimiser import AdamW, adamw

CPU = torch.device("cpu")
BETAS, DECAY = (0.8, 0.97), 0.2


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(3)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 3), (7,), (2, 2, 2), ())]


def groups(own: list[nn.Parameter]) -> list[dict[str, Any]]:
    return [{"params": own[:2], "lr": 0.3}, {"params": own[2:]}]


def take_steps(optimiser: Any, own: list[nn.Parameter], first: int, count: int) -> None:
    """Take steps on gradients drawn for each step; the second parameter has none at the first two, the third none at all at odd ones."""
    for step in range(first, first + count):
        optimiser.zero_grad()
        generator = torch.Generator().manual_seed(step)
        for place, parameter in enumerate(own):
            grad = torch.randn(parameter.shape, generator=generator)
            if not (place == 1 and step < 2) and not (place == 2 and step % 2):
                parameter.grad = grad
        optimiser.step()


def equal(left: list[nn.Parameter], right: list[nn.Parameter]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("grouped", [True, False])
def test_every_number_is_that_of_pytorchs_class(fused: bool, grouped: bool) -> None:
    ours, theirs = parameters(), parameters()
    shared = {"lr": 0.05, "betas": BETAS, "weight_decay": DECAY}
    mine = AdamW([shared | group for group in groups(ours)] if grouped else [shared | {"params": ours}], fused=fused)
    reference = torch.optim.AdamW(groups(theirs) if grouped else theirs, **shared, fused=fused)  # type: ignore[arg-type]
    take_steps(mine, ours, 0, 12)
    take_steps(reference, theirs, 0, 12)
    assert equal(ours, theirs)
    assert not equal(ours, parameters())


def test_it_goes_on_from_a_saved_state() -> None:
    through, saved, resumed = parameters(), parameters(), parameters()
    build = lambda own: adamw(groups(own), 0.05, BETAS, DECAY, CPU)  # noqa: E731
    take_steps(build(through), through, 0, 9)
    before, file = build(saved), io.BytesIO()
    take_steps(before, saved, 0, 4)
    torch.save(before.state_dict(), file)
    file.seek(0)
    after = build(resumed)
    after.load_state_dict(torch.load(file, weights_only=True))
    for fresh, old in zip(resumed, saved, strict=True):
        fresh.data.copy_(old.data)
    take_steps(after, resumed, 4, 5)
    assert equal(through, resumed)


def test_groups_take_the_shared_rate_unless_they_name_their_own() -> None:
    optimiser = adamw(groups(parameters()), 0.05, BETAS, DECAY, CPU)
    assert [(group["lr"], group["betas"], group["weight_decay"]) for group in optimiser.param_groups] == [
        (0.3, BETAS, DECAY),
        (0.05, BETAS, DECAY),
    ]


STEP = """
import sys
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
import glint.train.pretrain
from glint.train.optimiser import adamw

weight = torch.nn.Parameter(torch.ones(3, 3))
optimiser = adamw([weight], 0.1, (0.9, 0.95), 0.1, torch.device("cpu"))
optimiser.zero_grad()
cross_entropy(weight, torch.arange(3)).backward()
clip_grad_norm_([weight], 1.0)
optimiser.step()
print(*sorted({"torch._dynamo", "torch._inductor", "sympy", "networkx", "matplotlib"} & set(sys.modules)))
"""


def test_a_training_step_imports_no_compiler() -> None:
    said = subprocess.run([sys.executable, "-c", STEP], check=True, capture_output=True, text=True).stdout
    assert said.split() == []
