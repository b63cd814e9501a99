"""A GPU that is none, or several: its state and virtual clock, and what tests ask of it.

What is queued takes effect at once; when it would have run is kept apart: streams go on side by side, what
needs the same engine (SMs, one copy engine a direction) one after the other; `races` finds what should have
waited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CALL, DEPTH = 5e-6, 1024
"""Seconds that a call takes the host, and entries of the launch queue."""


PROPERTIES = {
    "name": b"NVIDIA Fake 1000",
    "major": 9,
    "minor": 0,
    "l2CacheSize": 1 << 16,
    "multiProcessorCount": 2,
}


class CUDARuntimeError(RuntimeError):
    """As CuPy's: the number is `status`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}: as the test asked\nand a second line")
        self.status = status


@dataclass
class Ran:
    """Something that a stream has done: when, and the (address, bytes) that it read and wrote."""

    name: str
    stream: int
    start: float
    end: float
    read: tuple[tuple[int, int], ...] = ()
    written: tuple[tuple[int, int], ...] = ()


@dataclass
class FakeGpu:
    """The state of the device, and what a test asks of it.

    seconds: what one launch takes, by (entry, grid, block, count);  bodies: entry -> what it does to memory
    fail: entry or call -> status to raise (at the next wait for launches);  compiled: source, options
    host_place: whether pages may be sent to the host by CuPy, which its build for CUDA 13 cannot
    """

    total: int = 1 << 30
    properties: dict[str, Any] = field(default_factory=lambda: dict(PROPERTIES))
    seconds: Callable[[str, int, int, int], float] = lambda entry, grid, block, count: 1e-5 + 1e-6 * count
    bodies: dict[str, Callable[..., None]] = field(default_factory=dict)
    fail: dict[str, int] = field(default_factory=dict)
    refuse: str = ""
    blocks_per_sm: int = 2
    wrong: bool = False
    live: dict[int, int] = field(default_factory=dict)
    compiled: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    launches: list[tuple[str, int, int, tuple[Any, ...], int]] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    devices: int = 1
    peers: bool = True
    managed: bool = True
    host_place: bool = True
    touches: dict[str, Callable[..., Any]] = field(default_factory=dict)
    current: int = 0
    home: dict[int, int] = field(default_factory=dict)
    pinned: dict[int, int] = field(default_factory=dict)
    enabled: set[tuple[int, int]] = field(default_factory=set)
    ran: list[Ran] = field(default_factory=list)
    clock: float = 1000.0
    gpu_time: float = 0.0
    floor: float = 0.0
    free: dict[Any, float] = field(default_factory=dict)
    blocked: dict[int, tuple[Any, int, float]] = field(default_factory=dict)
    streams: int = 0
    waiting: list[Callable[[], None]] = field(default_factory=list)
    ends: deque[float] = field(default_factory=deque)
    pending: int = 0
    recording: list[float] | None = None
    loaded: set[str] = field(default_factory=set)

    def now(self) -> float:
        """The host's clock; telemetry's thread may look, too."""
        return self.clock

    def call(self, name: str) -> None:
        """A call into the driver: time passes; an error that the test asked for appears."""
        assert self.recording is None or name in ("launch", "endCapture"), f"{name} while a graph is recorded"
        self.calls.append(name)
        self.clock += CALL
        self.look()
        if name in self.fail:
            raise CUDARuntimeError(self.fail[name])

    @property
    def held(self) -> tuple[int, float] | None:
        """Ticket and end of what waits for the host, if anything does."""
        return next(((ticket, end) for _, ticket, end in self.blocked.values()), None)

    def look(self) -> None:
        """Whether the host has raised the flags for which GPUs wait, or they give up."""
        for stream, (flags, ticket, end) in list(self.blocked.items()):
            if flags[0] >= ticket or self.clock >= end:
                if flags[0] < ticket:
                    flags[1] = ticket
                self.floor = max(self.floor, self.gpu_time, min(self.clock, end))
                self.gpu_time = self.floor
                del self.blocked[stream]
                if not self.blocked:
                    for action in self.waiting:
                        action()
                    self.waiting.clear()

    def queue(
        self,
        seconds: float,
        name: str,
        mark: Any = None,
        stream: int = 77,
        engine: Any = "sm",
        after: Any = None,
        read: tuple[tuple[int, int], ...] = (),
        written: tuple[tuple[int, int], ...] = (),
    ) -> None:
        """Put something on a stream; a full queue holds the host up.

        engine: what it needs for itself, with the GPU that is current (None: nothing);  after: an event
        """
        queued, key = self.clock, (self.current, engine)

        def run() -> None:
            ready = [queued, self.floor, self.free.get(stream, 0.0)]
            if engine is not None and seconds:
                ready.append(self.free.get(key, 0.0))
            if after is not None:
                assert after.time is not None, f"{name} waits for an event that nobody recorded"
                ready.append(after.time)
            start = max(ready)
            end = self.free[stream] = start + seconds
            if engine is not None and seconds:
                self.free[key] = end
            self.gpu_time = max(self.gpu_time, end)
            self.ends.append(self.gpu_time)
            if read or written:
                self.ran.append(Ran(name, stream, start, end, read, written))
            if mark is not None:
                mark.time = end

        if self.held is None:
            run()
            while self.ends and self.ends[0] <= self.clock:
                self.ends.popleft()
            if len(self.ends) >= DEPTH:
                self.clock = max(self.clock, self.ends.popleft())
            return
        self.waiting.append(run)
        if len(self.waiting) >= DEPTH:
            self.hangs.append(f"{name}: {DEPTH} launches queued while the GPU waits for the host")
            self.give_up()

    def give_up(self) -> None:
        """The host can do nothing: time passes until the GPU stops waiting."""
        if self.held is not None:
            self.clock = max(self.clock, *(end for _, _, end in self.blocked.values()))
            self.look()

    def wait(self) -> None:
        """Until all that is queued has run; the errors of launches appear here."""
        if any(flags[0] < ticket for flags, ticket, _ in self.blocked.values()):
            self.hangs.append("the host waits for the GPU, which waits for the host")
            self.give_up()
        self.look()
        self.clock = max(self.clock, self.gpu_time) + CALL
        if self.pending:
            raise CUDARuntimeError(self.pending)

    def holds(self, address: int, bytes: int) -> bool:
        """Whether memory that lives, of a GPU or locked on the host, has that range."""
        known = {**self.live, **self.pinned}
        return any(p <= address and address + bytes <= p + size for p, size in known.items())

    def locked(self, address: int) -> bool:
        """Whether that is locked memory of the host."""
        return any(p <= address < p + size for p, size in self.pinned.items())

    def on_device(self, address: int) -> int | None:
        """The GPU in whose memory that is, None for the host's."""
        return next((self.home[p] for p, size in self.live.items() if p <= address < p + size), None)

    def races(self) -> list[str]:
        """Pairs that touched the same bytes at the same time, one of them writing."""

        def meet(one: Any, other: Any) -> bool:
            return any(p < q + m and q < p + n for p, n in one for q, m in other)

        found = []
        for i, a in enumerate(self.ran):
            for b in self.ran[i + 1 :]:
                apart = a.stream == b.stream or a.end <= b.start + 1e-12
                if not apart and (
                    meet(a.written, b.read) or meet(a.read, b.written) or meet(a.written, b.written)
                ):
                    found.append(f"{b.name} from {b.start:.9f} while {a.name} until {a.end:.9f}")
        return found

    def used(self) -> int:
        """Bytes allocated."""
        return sum(self.live.values())
