"""The quantities that NVML may know of a GPU, each asked for in SI units by one function that only reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

REASONS = {
    "GpuIdle": "idle",
    "ApplicationsClocksSetting": "app_clocks",
    "SwPowerCap": "sw_power_cap",
    "HwSlowdown": "hw_slowdown",
    "SyncBoost": "sync_boost",
    "SwThermalSlowdown": "sw_thermal",
    "HwThermalSlowdown": "hw_thermal",
    "HwPowerBrakeSlowdown": "power_brake",
    "DisplayClockSetting": "display_clock",
}
"""Why a clock is not higher: the ends of NVML's constant names and our words."""

COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")

ABSENT = (2**32 - 1, 2**64 - 1)
"""What NVML hands out for "not available" in a value that claims success."""

POWER_INSTANT = 186
"""Field of the power at this instant (W x 1000); the ordinary one is a mean over 1 s on most GPUs."""

UNKNOWN_PERFORMANCE_STATE = 32

Quantity = Callable[[Any, Any], Any]


def _megahertz(call: str, clock: str) -> Quantity:
    return lambda n, h: getattr(n, call)(h, getattr(n, clock)) * 1e6


def _scaled(call: str, factor: float = 1e-3) -> Quantity:
    return lambda n, h: _present(getattr(n, call)(h)) * factor


def _plain(call: str) -> Quantity:
    return lambda n, h: _present(getattr(n, call)(h))


def _present(value: Any) -> Any:
    if value in ABSENT:
        raise LookupError("NVML has no value")
    return value


def _power_instant(n: Any, handle: Any) -> float:
    (value,) = n.nvmlDeviceGetFieldValues(handle, [POWER_INSTANT])
    if value.nvmlReturn != 0:
        raise LookupError("the field is not supported")
    kinds = {
        n.NVML_VALUE_TYPE_DOUBLE: "dVal",
        n.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        n.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        n.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    }
    return float(_present(getattr(value.value, kinds.get(value.valueType, "uiVal")))) * 1e-3


def _reasons(n: Any, handle: Any) -> tuple[str, ...]:
    """Words for the set bits; drivers and packages before 2023 call clock events throttle reasons."""
    try:
        bits = n.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except (AttributeError, n.NVMLError):
        bits = n.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return tuple(word for name, word in REASONS.items() if bits & _bit(n, name))


def _bit(n: Any, name: str) -> int:
    return int(getattr(n, f"nvmlClocksEventReason{name}", getattr(n, f"nvmlClocksThrottleReason{name}", 0)))


def _mode(call: str) -> Quantity:
    """Of a pair (current, pending): whether the current one is on."""
    return lambda n, h: bool(getattr(n, call)(h)[0])


def _performance_state(n: Any, handle: Any) -> int:
    found = int(n.nvmlDeviceGetPerformanceState(handle))
    if found == UNKNOWN_PERFORMANCE_STATE:
        raise LookupError("the performance state is unknown")
    return found


MOMENT: Mapping[str, Quantity] = {
    "sm_clock_hz": _megahertz("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
    "memory_clock_hz": _megahertz("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
    "power_w": _scaled("nvmlDeviceGetPowerUsage"),
    "power_instant_w": _power_instant,
    "temperature_c": lambda n, h: float(n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)),
    "throttle": _reasons,
    "energy_j": _scaled("nvmlDeviceGetTotalEnergyConsumption"),
    "pcie_generation": _plain("nvmlDeviceGetCurrPcieLinkGeneration"),
    "pcie_width": _plain("nvmlDeviceGetCurrPcieLinkWidth"),
}
"""What changes while a kernel runs: Hz, W, degree Celsius, J; sampled by telemetry."""

STANDING: Mapping[str, Quantity] = {
    "power_limit_w": _scaled("nvmlDeviceGetEnforcedPowerLimit"),
    "power_limit_default_w": _scaled("nvmlDeviceGetPowerManagementDefaultLimit"),
    "ecc": _mode("nvmlDeviceGetEccMode"),
    "mig": _mode("nvmlDeviceGetMigMode"),
    "persistence": lambda n, h: bool(n.nvmlDeviceGetPersistenceMode(h)),
    "compute_mode": lambda n, h: COMPUTE_MODES[n.nvmlDeviceGetComputeMode(h)],
    "performance_state": _performance_state,
    "pcie_max_generation": _plain("nvmlDeviceGetMaxPcieLinkGeneration"),
    "pcie_max_width": _plain("nvmlDeviceGetMaxPcieLinkWidth"),
    "max_sm_clock_hz": _megahertz("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
    "max_memory_clock_hz": _megahertz("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_MEM"),
    "memory_bus_bits": _plain("nvmlDeviceGetMemoryBusWidth"),
    "utilisation": lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu / 100,
    "memory_utilisation": lambda n, h: n.nvmlDeviceGetUtilizationRates(h).memory / 100,
}
"""What stands while a run lasts, or describes the moment before it; shares are 0..1."""

OWN: Mapping[str, Quantity] = {
    "memory_bytes": lambda n, h: int(_present(n.nvmlDeviceGetMemoryInfo(h).total)),
    "memory_free_bytes": lambda n, h: int(_present(n.nvmlDeviceGetMemoryInfo(h).free)),
    "memory_used_bytes": lambda n, h: int(_present(n.nvmlDeviceGetMemoryInfo(h).used)),
    "process_ids": lambda n, h: tuple(int(p.pid) for p in n.nvmlDeviceGetComputeRunningProcesses(h)),
}
"""What a MIG slice has for itself; everything above is the whole board's."""
