"""What the driver's monitoring library (NVML) says of a GPU: every value may be missing, none is ever set."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from bench.gpu.quantities import MOMENT, OWN, STANDING, Quantity
from bench.gpu.states import State, state
from bench.host import tree


class NvmlAbsent(Exception):
    """NVML cannot be read; `state` says why in words."""

    def __init__(self, found: State) -> None:
        super().__init__(found.sentence)
        self.state = found


@dataclass(frozen=True)
class Slice:
    """One MIG slice of a board: UUID, profile (1g.10gb), SMs and bytes of its own."""

    handle: Any
    uuid: str
    name: str
    sms: int | None = None
    memory_bytes: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None

    @property
    def profile(self) -> str:
        """The profile at the end of its name: NVIDIA A100-SXM4-40GB MIG 1g.5gb."""
        return self.name.rpartition("MIG ")[2] or self.name


@dataclass
class Board:
    """One GPU as NVML sees it; `part` when it stands for a MIG slice, whose UUID and name it then has."""

    library: Any
    handle: Any
    uuid: str = ""
    name: str = ""
    pci: str = ""
    part: Slice | None = None
    slices: tuple[Slice, ...] = ()
    mig: bool = False
    parent_uuid: str = ""
    missing: set[str] = field(default_factory=set)

    @classmethod
    def silent(cls) -> Board:
        """A board of which nothing is known: NVML is not there."""
        return cls(None, None)

    @property
    def whole_board(self) -> bool:
        """Whether clocks, power and temperature are those of a board that others share by MIG."""
        return self.part is not None

    def moment(self) -> dict[str, Any]:
        """MOMENT's quantities now, None where not supported; what once was not is not asked again."""
        return {name: self._value(name, ask, self.handle) for name, ask in MOMENT.items()}

    def reading(self, own_context: bool = False) -> dict[str, Any]:
        """Everything, with `processes` (others that compute here) and `unsupported` (names).

        own_context: whether this process has a context, which a container may list under a foreign number.
        """
        found = self.moment() | {k: self._value(k, ask, self.handle) for k, ask in STANDING.items()}
        own = self.handle if self.part is None else self.part.handle
        found |= {name: self._value(name, ask, own) for name, ask in OWN.items()}
        found["processes"] = _others(found.pop("process_ids"), own_context)
        return found | {
            "unsupported": sorted(self.missing - {"process_ids"}),
            "whole_board": self.whole_board,
        }

    def _value(self, name: str, ask: Quantity, handle: Any) -> Any:
        if self.library is None or name in self.missing:
            self.missing.add(name)
            return None
        try:
            return ask(self.library, handle)
        except _errors(self.library, LookupError) as error:
            if not _passing(self.library, error):
                self.missing.add(name)
            return None


def _errors(n: Any, *more: type[Exception]) -> tuple[type[Exception], ...]:
    """What the package raises: for a function that an old driver lacks now and then a class of its own."""
    return n.NVMLError, getattr(n, "NVMLLibraryMismatchError", n.NVMLError), AttributeError, *more


def _passing(n: Any, error: Exception) -> bool:
    """Whether another try may succeed: a lost GPU, a time-out; not what the GPU does not have."""
    lasting = (n.NVML_ERROR_NOT_SUPPORTED, n.NVML_ERROR_NO_PERMISSION, n.NVML_ERROR_FUNCTION_NOT_FOUND)
    return getattr(error, "value", n.NVML_ERROR_NOT_SUPPORTED) not in lasting


def _others(pids: tuple[int, ...] | None, own_context: bool) -> int | None:
    if pids is None:
        return None
    others = [pid for pid in pids if not _is_ours(pid)]
    foreign = own_context and len(others) == len(pids)
    return max(0, len(others) - foreign)


def _is_ours(pid: int) -> bool:
    """Whether a process is this one or descends from it: the measuring child is no neighbour."""
    while pid > 1:
        if pid == os.getpid():
            return True
        after_name = tree.text(tree.ROOT, f"proc/{pid}/stat").rpartition(")")[2].split()
        pid = int(after_name[1]) if len(after_name) > 1 else 0
    return False


class Nvml:
    """One session with NVML: the boards of this machine in PCI order."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.driver = _text(_known(library.nvmlSystemGetDriverVersion, library) or "")
        self.cuda = int(_known(library.nvmlSystemGetCudaDriverVersion, library) or 0)

    def boards(self) -> tuple[tuple[Board, ...], tuple[State, ...]]:
        """Boards that answer, by PCI bus id, and the states of those that do not."""
        boards, broken = [], []
        for place in range(_known(self.library.nvmlDeviceGetCount, self.library) or 0):
            try:
                board = self._board(self.library.nvmlDeviceGetHandleByIndex(place))
            except self.library.NVMLError as error:
                broken.append(_board_state(self.library, error))
            else:
                boards.append(board)
        return tuple(sorted(boards, key=lambda board: board.pci)), tuple(broken)

    def board(self, uuid: str) -> Board:
        """The board of a GPU or MIG UUID; NvmlAbsent where there is none."""
        try:
            handle = self.library.nvmlDeviceGetHandleByUUID(uuid)
            if not uuid.startswith("MIG-"):
                return self._board(handle)
            board = self._board(self.library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))
            return of_slice(board, self._slice(handle))
        except self.library.NVMLError as error:
            raise NvmlAbsent(_board_state(self.library, error)) from None

    def _board(self, handle: Any) -> Board:
        n = self.library
        uuid = _text(_known(lambda: n.nvmlDeviceGetUUID(handle), n) or "")
        name = _text(_known(lambda: n.nvmlDeviceGetName(handle), n) or "NVIDIA GPU")
        pci = _known(lambda: _pci(n.nvmlDeviceGetPciInfo(handle)), n) or ""
        mig = bool(_known(lambda: n.nvmlDeviceGetMigMode(handle)[0], n))
        return Board(n, handle, uuid, name, pci, slices=self._slices(handle) if mig else (), mig=mig)

    def _slices(self, handle: Any) -> tuple[Slice, ...]:
        n = self.library
        most = _known(lambda: n.nvmlDeviceGetMaxMigDeviceCount(handle), n) or 0
        handles = [
            _known(partial(n.nvmlDeviceGetMigDeviceHandleByIndex, handle, place), n) for place in range(most)
        ]
        return tuple(self._slice(found) for found in handles if found is not None)

    def _slice(self, handle: Any) -> Slice:
        n = self.library
        size = _known(lambda: n.nvmlDeviceGetAttributes_v2(handle), n)
        return Slice(
            handle,
            _text(n.nvmlDeviceGetUUID(handle)),
            _text(_known(lambda: n.nvmlDeviceGetName(handle), n) or "MIG slice"),
            None if size is None else int(size.multiprocessorCount),
            None if size is None else int(size.memorySizeMB) << 20,
            _known(lambda: n.nvmlDeviceGetGpuInstanceId(handle), n),
            _known(lambda: n.nvmlDeviceGetComputeInstanceId(handle), n),
        )


def of_slice(board: Board, part: Slice) -> Board:
    """The board as one of its slices has it: memory and processes are the slice's own."""
    return Board(
        board.library, board.handle, part.uuid, part.name, board.pci, part, mig=True, parent_uuid=board.uuid
    )


def _known(ask: Callable[[], Any], n: Any) -> Any:
    """The answer, None where NVML has none."""
    try:
        return ask()
    except _errors(n):
        return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _pci(info: Any) -> str:
    """Domain, bus, device and function as CUDA writes them: 0000:3b:00.0."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _board_state(n: Any, error: Exception) -> State:
    value = getattr(error, "value", None)
    if value == n.NVML_ERROR_NO_PERMISSION:
        return state("no-permission")
    if value in (n.NVML_ERROR_GPU_IS_LOST, n.NVML_ERROR_RESET_REQUIRED):
        return state("lost", error=str(error))
    return state("nvml-failed", error=str(error))


def connect() -> Nvml:
    """A session with NVML that lasts as long as the process; NvmlAbsent names what is missing."""
    try:
        library: Any = import_module("pynvml")
    except ImportError:
        raise NvmlAbsent(state("no-package")) from None
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise NvmlAbsent(_start_state(library, error)) from None
    return Nvml(library)


@contextlib.contextmanager
def open_nvml() -> Iterator[Nvml]:
    """A session with NVML for the length of a block; NvmlAbsent as from connect()."""
    session = connect()
    try:
        yield session
    finally:
        with contextlib.suppress(session.library.NVMLError):
            session.library.nvmlShutdown()


def _start_state(n: Any, error: Exception) -> State:
    codes = {
        n.NVML_ERROR_LIBRARY_NOT_FOUND: "no-driver",
        n.NVML_ERROR_DRIVER_NOT_LOADED: "not-loaded",
        n.NVML_ERROR_NO_PERMISSION: "no-permission",
        n.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "mismatch-driver",
        n.NVML_ERROR_GPU_NOT_FOUND: "no-device",
    }
    return state(codes.get(getattr(error, "value", None), "nvml-failed"), error=str(error))
