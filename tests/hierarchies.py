"""Profiles of simulated devices whose memory and links were measured, made once each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from bench.backends.simulated import SimulatedBackend
from bench.fitting.ceilings import derive
from bench.planning import sizes
from bench.profile import encoding
from bench.profile.records import Ceiling, Point, Precision, Profile, Sample

FP64 = Precision.of("fp64")


VOLUMES = [1 << k for k in range(10, 31, 2)]


CHUNKS = (1, 2, 4, 8, 16, 32)


def near(backend: SimulatedBackend) -> Iterator[Point]:
    """Working sets, chases, fewer threads, and the two sides of the roof."""
    device, threads = backend.device, backend.device.threads
    for size in sizes.working_sets(device, threads, 8e9, 4, True):
        yield Point(
            "cache", "cache-read", "s1u8", FP64, "DRAM", "read", threads=threads, sizes={"bytes": size}
        )
    for size in sizes.working_sets(device, 1, 8e9, 4, True):
        level = sizes.level_of(device, size, 1)
        yield Point("latency", "chase", "1 chain", FP64, level, "read", scope="core", sizes={"bytes": size})
    flat = {**sizes.plateaus(device, 1)[0], "DRAM": 8 * device.last_level_cache_bytes}
    for level, size in flat.items():
        sized = {"bytes": size, "plateau": 1}
        for count in (1, 2, 4, 8, 16, 32, 64) if level == "DRAM" else (1,):
            variant = f"{count} chain{'s' * (count > 1)}"
            yield Point("latency", "chase", variant, FP64, level, "read", scope="core", sizes=sized)
    for count in {1, 2, threads}:
        sized = {"bytes": 4 << 30}
        yield Point("scaling", "read", "s3u4", FP64, "DRAM", "read", threads=count, sizes=sized)
    for access in ("read", "update"):
        yield Point("stream", access, "s3u4", FP64, "DRAM", access, threads=threads, sizes={"bytes": 1 << 30})
    yield Point("fma", "fma", "12 chains", FP64, threads=threads)


def far(backend: SimulatedBackend, ways: Sequence[tuple[str, str, str]], overlap: str) -> Iterator[Point]:
    """Links as (kernel, level, access), launches, a pipeline over `overlap`, and everything between peers."""
    for kernel, level, access in ways:
        for size in VOLUMES:
            yield Point("link", kernel, "", FP64, level, access, sizes={"bytes": size})
    for variant in backend.truth.launch:
        yield Point("launch", "empty", variant, FP64, threads=backend.device.threads)
        for size in VOLUMES:
            yield Point("launch", "smallest", variant, FP64, "", "copy", sizes={"bytes": size})
    shared = {"bytes": 64 << 20, "percent": 100}
    piped = Point("overlap", "pipeline", "", FP64, overlap, "read", sizes=shared)
    yield from (replace(piped, variant=variant) for variant in ("copy alone", "compute alone"))
    yield from (replace(piped, variant="pipelined", sizes={**shared, "chunks": k}) for k in CHUNKS)
    count = backend.truth.peers.devices if backend.truth.peers else 0
    for one in range(count):
        for size in VOLUMES:
            other = (one + 1) % count
            yield Point("link", "copy-peer", "", FP64, f"peer {one}>{other}", "write", sizes={"bytes": size})
    for size in VOLUMES:
        sized = {"bytes": size, "devices": max(2, count)}
        yield Point("collective", "all-reduce", "", FP64, f"{count} devices", "exchange", sizes=sized)


def measured(backend: SimulatedBackend, points: Sequence[Point], rounds: int = 5) -> list[Sample]:
    """Samples as a run would make them; what the device lacks is a skip."""
    found = []
    for number in range(1, rounds + 1):
        backend.begin_round(number)
        for order, point in enumerate(points):
            if reason := backend.unsupported(point):
                found.append(Sample(point, number, number, order, status="skipped", reason=reason))
                continue
            prepared = backend.prepare(point)
            amount = max(1, int(2e-3 / backend.measure(prepared, 1, 1).seconds[0]))
            repetitions, work = backend.measure(prepared, amount, 5), prepared.work(amount)
            read, written = work.reads.get(point.level, 0.0), work.writes.get(point.level, 0.0)
            sample = Sample(point, number, number, order, flops=work.flops, bytes_read=read)
            facts = {"amount": amount}
            found.append(replace(sample, bytes_written=written, repetitions=repetitions, facts=facts))
    return found


@cache
def profile(name: str) -> Profile:
    """The profile of a simulated device by its hierarchy points."""
    backend = SimulatedBackend.named(name)
    ways = [("storage", "storage", "read"), ("loopback", "network", "send")]
    if backend.device.is_gpu:
        kernels = (("copy-pinned", "h2d"), ("copy-pinned", "both"), ("copy-pageable", "h2d"))
        ways = [(kernel, "host link", access) for kernel, access in kernels]
    overlap = backend.truth.overlap
    points = [*near(backend), *far(backend, ways, overlap.level if overlap else "")]
    header = {"device": encoding.plain(backend.device), "simulated": True}
    return derive(header, [{"round": 1}], measured(backend, points))


CPU, GPU = "small-cpu", "gpu-pair"


def of(name: str, quantity: str, **keys: object) -> Ceiling:
    """The only ceiling of a quantity with these keys."""
    found = [
        c
        for c in profile(name).ceilings
        if c.quantity == quantity and all(getattr(c, key) == value for key, value in keys.items())
    ]
    (one,) = found
    return one
