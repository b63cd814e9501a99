"""A short-lived child that opens CUDA ordinal 0 and says in JSON what it is, or in which state it is."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from bench import checkout
from bench.gpu import states
from bench.gpu.states import State, state

LIMIT = 90.0
"""Seconds for a child to import CuPy, open the GPU and compile a few lines; then the driver hangs."""

SOURCE = (
    '#include <cuda_fp16.h>\nextern "C" __global__ void probe(__half* x) { x[0] = __hadd(x[0], x[0]); }\n'
)
"""Compiled once, to know that the run-time compiler, its headers and this GPU go together."""

STATUS = {
    2: "full",
    46: "busy",
    100: "no-device",
    214: "lost",
    304: "no-permission",
    719: "lost",
    802: "fabric",
    803: "mismatch-driver",
}
"""CUDA's error numbers that mean a state of their own: memory allocation, devices unavailable, no device,
uncorrectable ECC, operating system, launch failure, system not ready, driver mismatch."""

ATTRIBUTES = {
    "sm_count": ("MultiProcessorCount", 1),
    "l2_bytes": ("L2CacheSize", 1),
    "memory_bus_bits": ("GlobalMemoryBusWidth", 1),
    "max_threads_per_sm": ("MaxThreadsPerMultiProcessor", 1),
    "max_threads_per_block": ("MaxThreadsPerBlock", 1),
    "max_blocks_per_sm": ("MaxBlocksPerMultiprocessor", 1),
    "shared_per_sm": ("MaxSharedMemoryPerMultiprocessor", 1),
    "shared_per_block": ("MaxSharedMemoryPerBlockOptin", 1),
    "registers_per_sm": ("MaxRegistersPerMultiprocessor", 1),
    "warp_size": ("WarpSize", 1),
    "max_sm_clock_hz": ("ClockRate", 1000),
    "max_memory_clock_hz": ("MemoryClockRate", 1000),
    "integrated": ("Integrated", 1),
}
"""Our name, CUDA's name of the device attribute, and the factor that makes it SI."""


def report() -> dict[str, Any]:
    """What ordinal 0 is, or {"state": code, "message": sentence}: nothing is raised."""
    try:
        cupy: Any = import_module("cupy")
    except ModuleNotFoundError as error:
        absent = error.name == "cupy"
        return _saying(state("no-cupy") if absent else state("cupy-broken", error=_line(error)))
    except Exception as error:  # whatever a broken package raises
        return _saying(state("cupy-broken", error=_line(error)))
    try:
        return _opened(cupy)
    except Exception as error:
        return _saying(_state_of(cupy, error))


def _opened(cupy: Any) -> dict[str, Any]:
    runtime = cupy.cuda.runtime
    if not runtime.getDeviceCount():
        return _saying(state("no-device"))
    runtime.setDevice(0)
    found = properties(cupy)
    if old := states.gpu_too_old(found["compute_capability"], found["runtime"]):
        return _saying(old)
    found["free_bytes"], found["memory_bytes"] = (int(value) for value in runtime.memGetInfo())
    failure = _compiles(cupy, found["runtime"] // 1000)
    return _saying(failure) if failure else found


def properties(cupy: Any) -> dict[str, Any]:
    """Facts of ordinal 0 that need no context: name, sizes, clocks (Hz), versions, PCI bus id, UUID."""
    runtime = cupy.cuda.runtime
    given = runtime.getDeviceProperties(0)
    found: dict[str, Any] = {k: _attribute(runtime, *named) for k, named in ATTRIBUTES.items()}
    name = given["name"]
    return found | {
        "name": name.decode(errors="replace") if isinstance(name, bytes) else str(name),
        "compute_capability": 10 * int(given["major"]) + int(given["minor"]),
        "integrated": bool(found["integrated"]),
        "pci": _pci(runtime),
        "uuid_start": bytes(given.get("uuid", b""))[:16].hex(),
        "runtime": int(runtime.runtimeGetVersion()),
        "driver": int(runtime.driverGetVersion()),
        "cupy": str(cupy.__version__),
    }


def _attribute(runtime: Any, name: str, factor: int) -> int | None:
    try:
        return int(runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), 0)) * factor
    except (AttributeError, runtime.CUDARuntimeError):
        return None


def _pci(runtime: Any) -> str:
    try:
        return str(runtime.deviceGetPCIBusId(0)).lower()
    except runtime.CUDARuntimeError:
        return ""


def _compiles(cupy: Any, wheel: int) -> State | None:
    """Why the run-time compiler does not work, None if it does."""
    try:
        cupy.RawModule(code=SOURCE, options=("-std=c++17",), backend="nvrtc").compile()
    except Exception as error:  # each of CuPy's layers has its own
        text = f"{type(error).__name__} {error}"
        if "cuda_fp16.h" in text or "open source file" in text:
            return state("no-headers", error=_line(error), wheel=wheel)
        if "nvrtc" in text.lower() and (
            "NotFound" in text or "ImportError" in text or "No such file" in text
        ):
            return state("no-nvrtc", error=_line(error), wheel=wheel)
        return state("failed", error=f"a test kernel does not compile: {_line(error)}")
    return None


def _state_of(cupy: Any, error: Exception) -> State:
    """The state that an error of CUDA's means; a driver of version 0 is none at all."""
    status = getattr(error, "status", None)
    if status == 35:
        runtime = cupy.cuda.runtime
        driver = int(runtime.driverGetVersion())
        wheel = int(runtime.runtimeGetVersion())
        return states.driver_too_old(driver, wheel) if driver else state("no-driver")
    if status == 209:
        return state("failed", error="CuPy's own kernels are not made for this GPU: `make setup` anew")
    return state(STATUS.get(status or 0, "failed"), error=_line(error))


def _line(error: Exception) -> str:
    """The first line of an error, short enough for a sentence."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".: ")
    return text if len(text) <= 120 else f"{text[:117]}..."


def _saying(found: State) -> dict[str, Any]:
    return {"state": found.code, "message": found.sentence}


def count() -> dict[str, Any]:
    """{"names": [...]} of all ordinals that CUDA shows, or a state: for machines without NVML."""
    try:
        cupy: Any = import_module("cupy")
        runtime = cupy.cuda.runtime
        every = range(runtime.getDeviceCount())
        return {"names": [runtime.getDeviceProperties(n)["name"].decode(errors="replace") for n in every]}
    except Exception:
        return report()


# the parent's side


def ask(
    environments: Sequence[Mapping[str, str]], words: Sequence[str] = (), seconds: float = LIMIT
) -> list[dict[str, Any]]:
    """What a child under each environment (over this process's own) reports; they run at once.

    A child that says nothing in `seconds` is killed and reported as the state "hung".
    """
    deadline = time.monotonic() + seconds
    children = [_start(environment, words) for environment in environments]
    return [_answer(child, max(0.0, deadline - time.monotonic()), seconds) for child in children]


def _start(environment: Mapping[str, str], words: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.gpu.probe", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=checkout.environment(environment),
    )


def _answer(child: subprocess.Popen[str], wait: float, seconds: float) -> dict[str, Any]:
    try:
        said, complaint = child.communicate(timeout=wait)
    except subprocess.TimeoutExpired:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the driver cannot die
            child.communicate(timeout=2.0)
        return _saying(state("hung", seconds=seconds))
    for line in reversed(said.splitlines()):
        if line.startswith("{"):
            return dict(json.loads(line))
    last = complaint.strip().splitlines()[-1:] or [f"the probe ended with exit code {child.returncode}"]
    return _saying(state("failed", error=last[0]))


if __name__ == "__main__":
    print(json.dumps(count() if "--count" in sys.argv else report()), flush=True)
