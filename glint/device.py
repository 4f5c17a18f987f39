"""The only module that knows devices: which one, at which precision, with how many threads, and how much memory it took."""

import ctypes
import platform
import resource
import sys

import torch

from glint.config.execution import ExecutionRecipe


def choose_device(name: str) -> torch.device:
    """Return the device `name`; `auto` takes CUDA, else MPS, else the CPU. A device that is absent raises ValueError."""
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in present.items() if there)
    if not present[name]:
        there = ", ".join(kind for kind, is_there in present.items() if is_there)
        raise ValueError(f"execution.device is {name!r}, but this machine has no such device; present: {there}")
    return torch.device(name)


def multiplies_bf16(device: torch.device) -> bool:
    """Return whether `device` multiplies bfloat16 matrices in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))
    return False


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products: `auto` takes bf16 where the hardware has it, else fp32."""
    if precision == "auto":
        precision = "bf16" if multiplies_bf16(device) else "fp32"
    return {"bf16": torch.bfloat16, "fp32": torch.float32}[precision]


COMPILED_FOR = {"cpu"}


def compiles(device: torch.device) -> bool:
    """Return whether `glint.model.compiled` serves `device`; elsewhere the mechanisms run as PyTorch formulas under autograd."""
    return device.type in COMPILED_FOR


def packs(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether oneDNN multiplies matrices of `dtype` and keeps them in a layout of its own: on x86, bf16 from AVX-512 on."""
    if device.type != "cpu" or platform.machine().lower() not in {"x86_64", "amd64"} or not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Tell glibc to keep what is freed: a step's tensors come back at once, instead of page by page from the kernel (Linux)."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, 2**30)
            mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def fuses(device: torch.device) -> bool:
    """Return whether PyTorch's AdamW has a fused form on `device`, one pass over the parameters; MPS lacks it."""
    return device.type != "mps"


def prepare(execution: ExecutionRecipe) -> tuple[torch.device, torch.dtype]:
    """Set this process's threads and memory habits; return its device and matrix-product dtype."""
    keep_freed_memory()
    torch.set_num_threads(execution.threads)
    device = choose_device(execution.device)
    return device, choose_dtype(execution.precision, device)


def peak_mib(device: torch.device) -> float:
    """Return the largest memory this process has held, in MiB: device memory on CUDA, else resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def describe(device: torch.device, dtype: torch.dtype) -> dict[str, str | int]:
    """Return what a receipt says of the hardware."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"device": name, "dtype": str(dtype).removeprefix("torch."), "threads": torch.get_num_threads(), "torch": torch.__version__}
