"""What a backend is: the handful of verbs by which any device is measured, and how one is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench.device import Device
from bench.errors import DeviceError
from bench.profile.records import Point, Precision, Repetitions
from kernels.spec import Work

UNBOUNDED = 1 << 40
"""Most units of a repetition where nothing but time limits them: no repetition ever gets there."""


@dataclass
class Prepared:
    """A point made ready: memory allocated and touched, code compiled, sizes final.

    work(amount): Work of one repetition of `amount` units (iterations, blocks or passes)
    least, most, step: allowed amounts;  facts: launch shape, library, ... for the sample
    handle: the backend's own;  clock_source: where it is not the backend's
    """

    point: Point
    work: Callable[[int], Work]
    least: int
    most: int
    step: int = 1
    facts: dict[str, Any] = field(default_factory=dict)
    handle: Any = None
    clock_source: str = ""


class Backend(Protocol):
    """The verbs. Nothing above this line knows precisions, instruction sets or contexts."""

    device: Device
    clock_source: str

    def begin_round(self, round: int) -> None:
        """A round starts (0: the pilot); a simulated device draws its between-round noise by it."""

    def variants(self, kernel: str, precision: Precision, level: str, threads: int) -> tuple[str, ...]:
        """Forms of `kernel` worth trying on this device, best guess first."""

    def unsupported(self, point: Point) -> str:
        """Why `point` cannot be measured here, or "" if it can."""

    def prepare(self, point: Point) -> Prepared:
        """Allocate, fill and compile; DeviceError or MemoryError with the cause."""

    def verify(self, prepared: Prepared) -> None:
        """Compare with the reference before the first timed run; VerificationError if it differs."""

    def warm_up(self, seconds: float) -> None:
        """Keep the device busy for `seconds`, so that clocks settle."""

    def measure(self, prepared: Prepared, amount: int, n: int) -> Repetitions:
        """Run n repetitions of `amount` units in one native call."""

    def release(self, prepared: Prepared) -> None:
        """Give the memory back."""

    def conditions(self) -> Mapping[str, Any]:
        """The state of the device now: load, clocks, temperature, other tenants."""

    def now(self) -> float:
        """Seconds on the backend's clock (virtual on a simulated device)."""


def open_backend(device: str) -> Backend:
    """The backend for `--device` text: cpu, cuda:N, sim:NAME, sim:FILE.yaml; DeviceError lists the valid."""
    if device == "cpu":
        from bench.backends.cpu import CpuBackend

        return CpuBackend()
    if device.startswith("sim:"):
        from bench.backends.simulated import SimulatedBackend

        return SimulatedBackend.named(device[4:])
    if device.startswith("cuda:"):
        from bench.backends.cuda import CudaBackend

        return CudaBackend.named(device)
    if device.startswith("numba:"):
        from bench.backends.numba_cuda import NumbaCudaBackend

        return NumbaCudaBackend.named(device)
    raise DeviceError(
        f"unknown device {device!r}; valid: cpu, cuda:N, sim:NAME or sim:FILE.yaml "
        "(see `python -m bench devices`)"
    )
