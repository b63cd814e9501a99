"""A stand-in for a machine with GPUs: what NVML, CuPy and its files say, for tests of device discovery."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import described, probe
from bench.gpu.nvml import Board, Nvml
from tests import fake_nvml
from tests.fake_nvml import FakeBoard, FakeSlice

GPU = Path(probe.__file__).parent
FAKES = Path(__file__).parent / "fake_cuda"

A, B, C = (f"GPU-{digit * 8}-1111-2222-3333-444444444444" for digit in "abc")
M, N = "MIG-dddddddd-1111-2222-3333-444444444444", "MIG-eeeeeeee-1111-2222-3333-444444444444"

ATTRIBUTES = {
    "MultiProcessorCount": 132,
    "L2CacheSize": 50 << 20,
    "GlobalMemoryBusWidth": 5120,
    "MaxThreadsPerMultiProcessor": 2048,
    "MaxSharedMemoryPerMultiprocessor": 228 << 10,
    "MaxRegistersPerMultiprocessor": 65536,
    "ClockRate": 1_980_000,
    "MemoryClockRate": 2_619_000,
    "WarpSize": 32,
}


def gpu(uuid: str = A, bus: int = 0x10, capability: int = 90, **more: Any) -> dict[str, Any]:
    """What CUDA says of a GPU."""
    found = {
        "name": "NVIDIA Test 9000",
        "capability": capability,
        "uuid": re.sub("^(GPU|MIG)|-", "", uuid),
        "pci": f"0000:{bus:02X}:00.0",
        "attributes": ATTRIBUTES,
        "memory": [60 << 30, 64 << 30],
    }
    return found | more


class Machine:
    """This machine with the GPUs, packages and failures of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.patch, self.root = monkeypatch, root
        self.asked: list[dict[str, str]] = []

    def has(self, *boards: FakeBoard, **more: Any) -> Any:
        """NVML with these boards; the module."""
        made = fake_nvml.module(*boards, **more)
        self.patch.setitem(sys.modules, "pynvml", made)
        return made

    def says(self, **said: Any) -> None:
        """CuPy in the children, which are quick calls in this process."""
        self.patch.setenv("FAKE_CUPY", json.dumps(said))
        self.patch.setattr(probe, "ask", self._answers)

    def has_children(self, **said: Any) -> None:
        """CuPy in real child processes."""
        self.patch.setenv("PYTHONPATH", str(FAKES))
        self.patch.setenv("FAKE_CUPY", json.dumps(said))

    def _answers(
        self, environments: Sequence[Mapping[str, str]], words: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        answers = []
        for environment in environments:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in environment.items():
                    patch.setenv(name, value)
                answers.append(self._run(probe.count if words else probe.report))
        return answers

    def _run(self, asked: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        real = sys.modules.pop("cupy", None)
        sys.path.insert(0, str(FAKES))
        try:
            return asked()
        finally:
            sys.path.remove(str(FAKES))
            sys.modules.pop("cupy", None)
            if real is not None:
                sys.modules["cupy"] = real

    def report(self, **said: Any) -> dict[str, Any]:
        """What the probe says with this CuPy."""
        self.says(**said)
        return self._run(probe.report)

    def file(self, path: str, text: str = "") -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def rows(self, **environ: str) -> list[dict[str, Any]]:
        for name, value in environ.items():
            self.patch.setenv(name, value)
        return described.gpu_devices(self.root, environ)


THREE = (FakeBoard(B, bus=0x20), FakeBoard(A, bus=0x10), FakeBoard(C, bus=0x30))
"""Three alike; NVML's own order is not that of their PCI addresses."""

SPLIT = FakeBoard(
    B,
    "NVIDIA Test 9000",
    0x20,
    mig=True,
    slices=(FakeSlice(M), FakeSlice(N, "2g.35gb", 32, 33000, (3, 1), pids=(1,))),
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Machine]:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROOFLINE_GPU", "CUDA_MODULE_LOADING"):
        monkeypatch.setenv(name, "")  # so that what a test sets is undone
        monkeypatch.delenv(name)
    monkeypatch.setattr(described, "_SESSION", [])
    yield Machine(monkeypatch, tmp_path)


def boards(*fakes: FakeBoard) -> tuple[Board, ...]:
    return Nvml(fake_nvml.module(*fakes)).boards()[0]
