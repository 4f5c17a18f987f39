"""AdamW, around PyTorch's function of that name.

The class `torch.optim.AdamW` imports PyTorch's compiler (`torch._dynamo`) when it is made: a second or two, as much as fifty steps of a
mini model. The function does not.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw as update

from glint.device import fuses

EPSILON = 1e-8


class AdamW:
    """AdamW (Loshchilov and Hutter, 2019) over groups of parameters; every number is that of `torch.optim.AdamW`.

    A group is a dictionary of `params`, `lr`, `betas` and `weight_decay`. Parameters without a gradient are passed over.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], *, fused: bool) -> None:
        """`fused` takes a step in one pass over a group's parameters."""
        self.param_groups = [group | {"params": list(group["params"])} for group in groups]
        self.fused = fused
        self.moments: dict[Tensor, dict[str, Tensor]] = {}

    def parameters(self) -> list[Tensor]:
        """Return the parameters of all groups, in order."""
        return list(itertools.chain.from_iterable(group["params"] for group in self.param_groups))

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for parameter in self.parameters():
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            moments = [self._moments_of(parameter) for parameter in moved]
            means, squares, steps = ([own[name] for own in moments] for name in ("mean", "square", "step"))
            update(
                moved,
                [parameter.grad for parameter in moved],
                means,
                squares,
                [],
                steps,
                fused=self.fused,
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=EPSILON,
                maximize=False,
            )

    def _moments_of(self, parameter: Tensor) -> dict[str, Tensor]:
        if parameter not in self.moments:
            step = torch.zeros((), device=parameter.device if self.fused else "cpu")
            self.moments[parameter] = {"step": step, "mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter)}
        return self.moments[parameter]

    def state_dict(self) -> dict[str, Any]:
        """Return steps and moments, by the place of their parameter; rates and decays are the recipe's."""
        places = {parameter: place for place, parameter in enumerate(self.parameters())}
        return {"moments": {places[parameter]: dict(own) for parameter, own in self.moments.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` has returned."""
        parameters = self.parameters()
        for place, saved in state["moments"].items():
            for name, tensor in self._moments_of(parameters[place]).items():
                tensor.copy_(saved[name])


def adamw(
    parameters: Iterable[torch.nn.Parameter] | list[dict[str, Any]],
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    device: torch.device,
) -> AdamW:
    """Return AdamW over parameters, or over groups of them that may name an `lr` of their own."""
    given = list(parameters)
    shared = {"lr": lr, "betas": betas, "weight_decay": weight_decay}
    groups = [shared | group for group in given if isinstance(group, dict)] or [shared | {"params": given}]
    return AdamW(groups, fused=fuses(device))
