"""Choice of device and precision, on machines that this one is not."""

import resource
import sys
from typing import Any

import pytest
import torch

from glint import device
from glint.config.execution import ExecutionRecipe

CPU, CUDA, MPS = (torch.device(kind) for kind in ("cpu", "cuda", "mps"))


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have nothing but a plain CPU."""
    machine(monkeypatch)


def machine(monkeypatch: pytest.MonkeyPatch, *, cuda: bool = False, mps: bool = False, cuda_bf16: bool = False, **cpu: bool) -> None:
    """Let torch report these devices and CPU capabilities."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: cpu)

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return cuda_bf16 or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)


@pytest.mark.parametrize(
    ("cuda", "mps", "chosen"), [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_takes_the_fastest_device_that_is_there(monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, chosen: str) -> None:
    machine(monkeypatch, cuda=cuda, mps=mps)
    assert device.choose_device("auto").type == chosen
    assert device.choose_device("cpu") == CPU
    assert device.choose_device(chosen).type == chosen


@pytest.mark.parametrize(("name", "present"), [("cuda", "mps, cpu"), ("mps", "cpu")])
def test_a_device_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, name: str, present: str) -> None:
    machine(monkeypatch, mps="mps" in present)
    with pytest.raises(ValueError, match=rf"^execution\.device is '{name}', but this machine has no such device; present: {present}$"):
        device.choose_device(name)


@pytest.mark.parametrize("capability", ["avx512_bf16", "amx_bf16", "bf16"])
def test_auto_precision_is_bf16_on_a_cpu_that_multiplies_it(monkeypatch: pytest.MonkeyPatch, capability: str) -> None:
    machine(monkeypatch, avx2=True)
    assert device.choose_dtype("auto", CPU) == torch.float32
    machine(monkeypatch, avx2=True, **{capability: True})
    assert device.choose_dtype("auto", CPU) == torch.bfloat16


@pytest.mark.parametrize(("hardware", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_precision_on_cuda_asks_for_hardware_not_emulation(monkeypatch: pytest.MonkeyPatch, hardware: bool, dtype: Any) -> None:
    machine(monkeypatch, cuda=True, cuda_bf16=hardware, avx512_bf16=not hardware)
    assert device.choose_dtype("auto", CUDA) == dtype


def test_auto_precision_on_mps_is_fp32_whatever_the_cpu_can(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, mps=True, bf16=True)
    assert device.choose_dtype("auto", MPS) == torch.float32


@pytest.mark.parametrize("where", [CPU, CUDA, MPS])
@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp32", torch.float32)])
def test_a_named_precision_is_taken(precision: str, dtype: torch.dtype, where: torch.device) -> None:
    assert device.choose_dtype(precision, where) == dtype


@pytest.mark.parametrize(
    ("machine", "onednn", "bf16", "where", "dtype", "packs"),
    [
        ("x86_64", True, True, CPU, torch.bfloat16, True),
        ("AMD64", True, False, CPU, torch.float32, True),
        ("x86_64", True, False, CPU, torch.bfloat16, False),
        ("x86_64", False, True, CPU, torch.float32, False),
        ("arm64", True, True, CPU, torch.float32, False),
        ("x86_64", True, True, CUDA, torch.bfloat16, False),
        ("arm64", True, True, MPS, torch.float32, False),
    ],
)
def test_matrices_are_packed_where_onednn_multiplies_them(
    monkeypatch: pytest.MonkeyPatch, machine: str, onednn: bool, bf16: bool, where: torch.device, dtype: torch.dtype, packs: bool
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: onednn)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: bf16)
    assert device.packs(where, dtype) == packs


def test_prepare_sets_the_threads_of_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    machine(monkeypatch, mps=True)
    found = device.prepare(ExecutionRecipe(device="mps", precision="fp32", threads=3))
    assert found == (MPS, torch.float32)
    assert asked == [3]


def test_fp32_on_cuda_is_fp32_and_no_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda=True, cuda_bf16=True)
    assert device.prepare(ExecutionRecipe(device="cuda", precision="fp32")) == (CUDA, torch.float32)
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32


def test_adamw_is_fused_where_the_device_has_it() -> None:
    assert [device.fuses(where) for where in (CPU, CUDA, MPS)] == [True, True, False]


def test_peak_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 50 < device.peak_mib(CPU) < 50_000
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda where: 3 * 2**20 if where == CUDA else 0)
    assert device.peak_mib(CUDA) == 3


def test_peak_memory_is_counted_in_bytes_on_macos_and_in_kib_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        ru_maxrss = 2**21

    monkeypatch.setattr(resource, "getrusage", lambda _: Usage)
    for platform, mib in (("darwin", 2), ("linux", 2048)):
        monkeypatch.setattr(sys, "platform", platform)
        assert device.peak_mib(CPU) == mib


def test_what_a_receipt_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")
    assert device.describe(CUDA, torch.bfloat16)["device"] == "Some GPU"
    said = device.describe(CPU, torch.float32)
    assert said == {"device": "cpu", "dtype": "float32", "threads": torch.get_num_threads(), "torch": torch.__version__}
