"""A stand-in for pynvml (nvidia-ml-py): boards, MIG slices, missing functions and failures as a test asks."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CONSTANTS = {
    "NVML_SUCCESS": 0,
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NO_PERMISSION": 4,
    "NVML_ERROR_NOT_FOUND": 6,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_ERROR_TIMEOUT": 10,
    "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
    "NVML_ERROR_FUNCTION_NOT_FOUND": 13,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_ERROR_RESET_REQUIRED": 16,
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": 18,
    "NVML_ERROR_GPU_NOT_FOUND": 28,
    "NVML_ERROR_UNKNOWN": 999,
    "NVML_CLOCK_SM": 1,
    "NVML_CLOCK_MEM": 2,
    "NVML_TEMPERATURE_GPU": 0,
    "NVML_VALUE_TYPE_DOUBLE": 0,
    "NVML_VALUE_TYPE_UNSIGNED_INT": 1,
    "NVML_VALUE_TYPE_UNSIGNED_LONG": 2,
    "NVML_VALUE_TYPE_UNSIGNED_LONG_LONG": 3,
    "nvmlClocksEventReasonGpuIdle": 0x1,
    "nvmlClocksEventReasonApplicationsClocksSetting": 0x2,
    "nvmlClocksEventReasonSwPowerCap": 0x4,
    "nvmlClocksEventReasonHwSlowdown": 0x8,
    "nvmlClocksEventReasonSyncBoost": 0x10,
    "nvmlClocksEventReasonSwThermalSlowdown": 0x20,
    "nvmlClocksEventReasonHwThermalSlowdown": 0x40,
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": 0x80,
    "nvmlClocksEventReasonDisplayClockSetting": 0x100,
}
"""As in nvidia-ml-py; a test compares them where that package is installed."""

MESSAGES = {3: "Not Supported", 4: "Insufficient Permissions", 9: "Driver Not Loaded", 15: "GPU is lost"}


class NVMLError(Exception):
    """As pynvml's: `value` is the code."""

    def __init__(self, value: int) -> None:
        super().__init__(MESSAGES.get(value, f"NVML error {value}"))
        self.value = value


@dataclass
class FakeSlice:
    """A MIG slice."""

    uuid: str
    profile: str = "1g.18gb"
    sms: int = 16
    megabytes: int = 16384
    instances: tuple[int, int] = (7, 0)
    pids: tuple[int, ...] = ()


@dataclass
class FakeBoard:
    """A board: units as NVML's own (MHz, mW, mJ); `errors` names functions that fail, with their code."""

    uuid: str = "GPU-11111111-2222-3333-4444-555555555555"
    name: str = "NVIDIA Test 9000"
    bus: int = 0x3B
    sm_mhz: int = 1500
    memory_mhz: int = 2000
    milliwatts: int = 300_000
    instant_milliwatts: int | None = 310_000
    millijoules: int = 5_000_000
    limit: int = 700_000
    default_limit: int = 700_000
    temperature: int = 55
    reasons: int = 0
    megabytes: int = 65536
    used_megabytes: int = 512
    bus_bits: int = 4096
    compute_mode: int = 0
    performance_state: int = 0
    pids: tuple[int, ...] = ()
    mig: bool | None = False
    slices: tuple[FakeSlice, ...] = ()
    errors: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)


JETSON = dict.fromkeys(
    (
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMemoryBusWidth",
        "nvmlDeviceGetCurrPcieLinkGeneration",
        "nvmlDeviceGetCurrPcieLinkWidth",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetPowerManagementDefaultLimit",
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetMigMode",
    ),
    3,
)
"""What a GPU that shares the CPU's memory does not tell."""


def everything() -> dict[str, int]:
    """Errors of a board that supports nothing."""
    names = [n for n in vars(module()) if n.startswith("nvmlDeviceGet")]
    return {n: 3 for n in names if "Handle" not in n and n not in ("nvmlDeviceGetCount",)}


def module(
    *boards: FakeBoard,
    start: int = 0,
    driver: str = "580.65.06",
    cuda: int = 13000,
    lost: dict[int, int] | None = None,
    absent: tuple[str, ...] = (),
) -> types.ModuleType:
    """A module to put into sys.modules as "pynvml".

    start: error code of nvmlInit;  lost: {place: error code of its handle};  absent: names it lacks
    """
    made = types.ModuleType("pynvml")
    driven = _Driver(boards, start, driver, cuda, lost or {})
    calls = {name: getattr(driven, name) for name in dir(driven) if name.startswith("nvml")}
    contents = {**CONSTANTS, "NVMLError": NVMLError, "driven": driven, **calls, **_readings()}
    made.__dict__.update({name: value for name, value in contents.items() if name not in absent})
    return made


class _Driver:
    """What concerns the whole machine, and the handles: a board or a slice is its own handle."""

    def __init__(
        self, boards: tuple[FakeBoard, ...], start: int, driver: str, cuda: int, lost: dict[int, int]
    ) -> None:
        self.boards, self.start, self.driver, self.cuda, self.lost = boards, start, driver, cuda, lost
        self.sessions = 0

    def nvmlInit(self) -> None:
        if self.start:
            raise NVMLError(self.start)
        self.sessions += 1

    def nvmlShutdown(self) -> None:
        self.sessions -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return self.cuda

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeBoard:
        if index in self.lost:
            raise NVMLError(self.lost[index])
        return self.boards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeBoard | FakeSlice:
        everyone = [*self.boards, *(s for b in self.boards for s in b.slices)]
        for unit in everyone:
            if unit.uuid == uuid:
                return unit
        raise NVMLError(6)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, migDevice: FakeSlice) -> FakeBoard:
        return next(board for board in self.boards if migDevice in board.slices)

    def nvmlDeviceGetName(self, handle: FakeBoard | FakeSlice) -> str | bytes:
        if isinstance(handle, FakeSlice):
            board = self.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            return f"{board.name} MIG {handle.profile}"
        return handle.name.encode() if handle.bus % 2 else handle.name


def _readings() -> dict[str, Callable[..., Any]]:
    """Every nvmlDeviceGet function of one handle, failing where the board says so."""
    return {name: _guarded(name, ask) for name, ask in _ASKED.items()}


def _guarded(name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
    def call(handle: Any, *more: Any) -> Any:
        if isinstance(handle, FakeBoard):
            handle.calls.append(name)
            if name in handle.errors:
                raise NVMLError(handle.errors[name])
        return ask(handle, *more)

    return call


def _simple(**values: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**values)


def _field(board: FakeBoard, fields: list[int]) -> list[Any]:
    assert fields == [186]
    known = board.instant_milliwatts is not None
    value = _simple(uiVal=board.instant_milliwatts or 0, dVal=-1.0, ulVal=-1, ullVal=-1)
    return [_simple(nvmlReturn=0 if known else 3, valueType=1, value=value)]


def _mig(board: FakeBoard) -> list[int]:
    if board.mig is None:
        raise NVMLError(3)
    return [int(board.mig), 0]


def _mig_handle(board: FakeBoard, index: int) -> FakeSlice:
    if index >= len(board.slices):
        raise NVMLError(6)
    return board.slices[index]


def _memory(handle: FakeBoard | FakeSlice) -> types.SimpleNamespace:
    total = handle.megabytes << 20
    used = handle.used_megabytes << 20 if isinstance(handle, FakeBoard) else 0
    return _simple(total=total, used=used, free=total - used)


_ASKED: dict[str, Callable[..., Any]] = {
    "nvmlDeviceGetUUID": lambda h: h.uuid,
    "nvmlDeviceGetPciInfo": lambda h: _simple(domain=0, bus=h.bus, device=0),
    "nvmlDeviceGetClockInfo": lambda h, kind: h.sm_mhz if kind == 1 else h.memory_mhz,
    "nvmlDeviceGetMaxClockInfo": lambda h, kind: 1980 if kind == 1 else 2619,
    "nvmlDeviceGetPowerUsage": lambda h: h.milliwatts,
    "nvmlDeviceGetFieldValues": _field,
    "nvmlDeviceGetTemperature": lambda h, sensor: h.temperature,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda h: h.reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda h: h.reasons,
    "nvmlDeviceGetTotalEnergyConsumption": lambda h: h.millijoules,
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda h: 5,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda h: 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda h: 5,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda h: 16,
    "nvmlDeviceGetEnforcedPowerLimit": lambda h: h.limit,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda h: h.default_limit,
    "nvmlDeviceGetEccMode": lambda h: [1, 1],
    "nvmlDeviceGetMigMode": _mig,
    "nvmlDeviceGetPersistenceMode": lambda h: 1,
    "nvmlDeviceGetComputeMode": lambda h: h.compute_mode,
    "nvmlDeviceGetPerformanceState": lambda h: h.performance_state,
    "nvmlDeviceGetMemoryBusWidth": lambda h: h.bus_bits,
    "nvmlDeviceGetUtilizationRates": lambda h: _simple(gpu=25, memory=10),
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetComputeRunningProcesses": lambda h: [_simple(pid=pid) for pid in h.pids],
    "nvmlDeviceGetMaxMigDeviceCount": lambda h: 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": _mig_handle,
    "nvmlDeviceGetAttributes_v2": lambda h: _simple(multiprocessorCount=h.sms, memorySizeMB=h.megabytes),
    "nvmlDeviceGetGpuInstanceId": lambda h: h.instances[0],
    "nvmlDeviceGetComputeInstanceId": lambda h: h.instances[1],
}
