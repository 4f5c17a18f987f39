"""The execution recipe: device, precision, threads."""

from typing import Literal

from glint.config.base import Positive, Strict

Precision = Literal["auto", "bf16", "fp32"]
Device = Literal["auto", "cpu", "cuda", "mps"]


class ExecutionRecipe(Strict):
    """Where and how a job computes. It is part of a recipe, because it changes the last bits of a result."""

    device: Device = "auto"
    """auto takes CUDA, else MPS, else the CPU."""
    precision: Precision = "auto"
    """auto takes bf16 autocast where the hardware multiplies bf16 (CUDA, AVX512-BF16, AMX), else fp32."""
    threads: Positive = 1
    """CPU threads of one job; many one-thread jobs side by side use the cores best."""
