"""How far two sets of gradients may differ."""

from torch import Tensor


def relative_error(value: Tensor, reference: Tensor) -> float:
    """Norm of the difference over the norm of the reference, in float64."""
    exact = reference.detach().double()
    return float((value.detach().double() - exact).norm() / exact.norm())


def zero_by_symmetry(layers: int) -> tuple[str, str]:
    """Name the two parameters without influence: all streams are equal before layer 0, and the end is their plain mean."""
    return "layers.0.read_logits", f"layers.{layers - 1}.write_logits"


def disagreements(gradients: dict[str, Tensor], reference: dict[str, Tensor], layers: int, tolerance: float = 1e-3) -> list[str]:
    """List the parameters whose gradient is off by more than `tolerance`, or is not 0 where it has to be."""
    assert gradients.keys() == reference.keys()
    zero = zero_by_symmetry(layers)
    wrong = [f"{name}: |gradient| {gradients[name].norm():.1e} instead of 0" for name in zero if gradients[name].norm() >= 1e-6]
    for name in reference.keys() - set(zero):
        error = relative_error(gradients[name], reference[name])
        if not error <= tolerance:
            wrong.append(f"{name}: relative error {error:.1e}")
    return sorted(wrong)
