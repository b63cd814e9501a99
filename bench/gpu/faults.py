"""What CuPy raises, in our words: out of memory is a MemoryError, everything else a DeviceError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.errors import BenchError, DeviceError, Unsupported

OUT_OF_MEMORY = 2
"""Status of an allocation that did not fit, of the runtime and of the driver alike."""

FATAL = {
    214: "an uncorrectable memory error",
    700: "an access to memory that is not there",
    702: "a launch that took too long: a display's watchdog, or a hang",
    710: "a device-side assertion",
    714: "a hardware stack error",
    715: "an illegal instruction",
    716: "a misaligned access",
    717: "an access to the wrong address space",
    718: "an invalid program counter",
    719: "a launch that failed",
    999: "an unknown error",
}
"""Statuses after which the context of the process is lost, and with it all that it holds."""

WORDS = {
    46: "the GPU is taken by another process in exclusive mode, or refuses all: wait, or name another GPU",
    100: "no GPU is visible to this process: look at CUDA_VISIBLE_DEVICES",
    209: "the installed CUDA has no code for this GPU: `make setup` picks the right one",
    222: "the driver is older than the CUDA that compiled this: update the driver, or `make setup CUDA=12`",
    701: "a block needs more registers or shared memory than the GPU has: choose a smaller one",
    802: "the GPU waits for its NVLink switches: an administrator starts nvidia-fabricmanager",
}


class ContextLost(DeviceError):
    """The process cannot use its GPU any more: whatever is left of the family needs a new one."""

    exit_code = DeviceError.exit_code


EXPECTED = (RuntimeError, ImportError, OSError)
"""Kinds of errors that CuPy and what it loads raise."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Errors of CuPy inside the block as ours, `what` naming what was being done."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"{what}: {first_line(error)}") from None
    except EXPECTED as error:
        raise _ours(what, error) from None


@contextmanager
def contained(what: str) -> Iterator[None]:
    """Whatever a library raises inside the block as ours: it costs a point, not the process of its family."""
    try:
        yield
    except (BenchError, MemoryError, AssertionError):
        raise
    except EXPECTED as error:
        raise _ours(what, error) from None
    except Exception as error:
        raise DeviceError(f"{what}: {type(error).__name__}: {first_line(error)}") from error


CUDAS_OWN = ("CUDARuntimeError", "CUDADriverError")
"""CuPy's errors whose `status` is one of CUDA's; those of its libraries count by themselves."""

NOT_THERE = {"CUBLASError": ("CUBLAS_STATUS_NOT_SUPPORTED", "CUBLAS_STATUS_ARCH_MISMATCH")}
"""By a library's error, what it says of a product that it does not make on this GPU."""


def _ours(what: str, error: Exception) -> Exception:
    status = getattr(error, "status", None) if type(error).__name__ in CUDAS_OWN else None
    if status == OUT_OF_MEMORY:
        return MemoryError(f"{what}: {first_line(error)}")
    if status in FATAL:
        return ContextLost(f"{what}: {FATAL[status]} ended the GPU's context ({first_line(error)})")
    if any(words in str(error) for words in NOT_THERE.get(type(error).__name__, ())):
        return Unsupported(f"{what}: the library does not make it on this GPU ({first_line(error)})")
    words = WORDS.get(status) if isinstance(status, int) else None
    return DeviceError(f"{what}: {words} ({first_line(error)})" if words else f"{what}: {first_line(error)}")


def first_line(error: Any) -> str:
    """The first line of an error's text, its kind where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
