"""A stand-in for CuPy in a probe's child: its GPUs and failures come as JSON in FAKE_CUPY."""

import json
import os
import time
from types import SimpleNamespace

SAID = json.loads(os.environ.get("FAKE_CUPY", "{}"))
if SAID.get("import"):
    raise ImportError(SAID["import"])
if SAID.get("hang"):
    time.sleep(60)
if SAID.get("die"):
    os.abort()

__version__ = "14.2.0"


class CUDARuntimeError(RuntimeError):
    """As CuPy's: the number is `status`."""

    def __init__(self, status):
        super().__init__(f"cudaErrorNumber{status}: as the test asked\nand a second line")
        self.status = status


def _fail(at):
    if SAID.get("at", "count") == at and SAID.get("status"):
        raise CUDARuntimeError(SAID["status"])


def _mine():
    """The GPU that CUDA_VISIBLE_DEVICES puts first, by UUID."""
    gpus = SAID["gpus"]
    return gpus.get(os.environ.get("CUDA_VISIBLE_DEVICES", ""), next(iter(gpus.values())))


def _count():
    _fail("count")
    return SAID.get("count", 1)


def _properties(number):
    mine = list(SAID["gpus"].values())[number] if SAID.get("count", 1) > 1 else _mine()
    return {
        "name": mine["name"].encode(),
        "major": mine["capability"] // 10,
        "minor": mine["capability"] % 10,
        "uuid": bytes.fromhex(mine["uuid"]),
    }


def _attribute(name, number):
    if name in SAID.get("lacking", ()):
        raise CUDARuntimeError(1)
    return _mine()["attributes"].get(name, 0)


def _memory():
    _fail("memory")
    return tuple(_mine()["memory"])


class RawModule:
    """Compiles nothing, or fails as asked; refuses what the real one would."""

    def __init__(self, *, code, options=(), backend="nvrtc"):
        assert "__global__" in code and backend == "nvrtc" and isinstance(options, tuple)

    def compile(self, log_stream=None):
        if SAID.get("compile"):
            raise RuntimeError(SAID["compile"])


class _Runtime(SimpleNamespace):
    def __getattr__(self, name):
        if name.startswith("cudaDevAttr"):
            return name.removeprefix("cudaDevAttr")
        raise AttributeError(name)


cuda = SimpleNamespace(
    runtime=_Runtime(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=_count,
        setDevice=lambda number: None,
        getDeviceProperties=_properties,
        deviceGetAttribute=_attribute,
        deviceGetPCIBusId=lambda number: _mine()["pci"],
        memGetInfo=_memory,
        runtimeGetVersion=lambda: SAID.get("runtime", 13000),
        driverGetVersion=lambda: SAID.get("driver", 13000),
    )
)
