"""The checks of a device: right results, honest clocks, work that takes its time, faults that stay small."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from statistics import median
from typing import Any

from bench.backends import Prepared
from bench.errors import BenchError, Unsupported, VerificationError
from bench.gpucheck.bed import SHORT, SMALL, Bed, sized, small
from bench.gpucheck.by_torch import against_torch
from bench.gpucheck.check import OK, Check, passed, skipped, within
from bench.gpucheck.doubling import doubled_bytes, doubled_flops, interleaved, more_intensity
from bench.gpucheck.links import links
from bench.profile.records import Point

NO_HARDWARE = "a simulated device has none"
LONG = 0.3
"""Seconds of a repetition that a host clock can follow."""


def results(bed: Bed) -> Iterator[Check]:
    """Every loop of a run once, against its reference; one line a family and precision."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in bed.points:
        groups.setdefault((point.family, point.precision.label), []).append(point)
    for (family, label), points in groups.items():
        yield _results(bed, f"results {family} {label}", points)


def _results(bed: Bed, name: str, points: list[Point]) -> Check:
    reasons = {bed.backend.unsupported(point) for point in points}
    if "" not in reasons:
        return skipped(name, reasons.pop())
    loops = {(p.kernel, p.variant, p.access, p.sizes.get("fma"), p.operands): small(p) for p in points}
    right, unfit, lacking = 0, "", []
    for point in loops.values():
        if time.monotonic() > bed.deadline:
            break
        try:
            with bed.prepared(point) as prepared:
                bed.backend.verify(prepared)
            right += 1
        except VerificationError as error:
            return passed(name, False, f"{point.kernel} {point.variant}: {error}", "its reference")
        except Unsupported as error:
            lacking.append(str(error))
        except (BenchError, MemoryError) as error:
            unfit = f"{point.kernel} {point.variant}: {error}"
    if not right and not unfit:
        return skipped(name, lacking[0] if lacking else "the time for results was up")
    said = f"{right} of {len(loops) - len(lacking)} loops right" + (f"; {unfit}" if unfit else "")
    return passed(name, right > 0 and not unfit, said, "equal to the reference")


def layouts(bed: Bed) -> Iterator[Check]:
    """Where matrix instructions read shared memory, each element of the operands is found in its place."""
    groups = bed.one_each(("tensor",), lambda p: (p.kernel, p.precision.label))
    points = [point for point in groups if point.kernel == "wgmma"]
    bodies: Any = getattr(bed.backend, "bodies", None)
    if bodies is None or not points:
        yield skipped("layout of wgmma", NO_HARDWARE if bodies is None else "this GPU has no wgmma")
        return
    for point in points:
        bodies.check_layout(point)
    yield Check("layout of wgmma", OK, f"{len(points)} of {len(points)} precisions right", "its reference")


def event_clock(bed: Bed) -> Iterator[Check]:
    """Twice the work adds the same time to the events as to the host's clock, which starts agree with."""
    point = bed.first(lambda p: p.family == "fma")
    if point is None:
        yield skipped("event clock", "no chain of multiply-adds runs here")
        return
    now = bed.backend.now
    with bed.prepared(point) as prepared:
        amount = bed.amount(prepared, LONG / 2)
        rows = []
        for factor in (1, 2):
            began = now()
            repetitions = bed.backend.measure(prepared, min(factor * amount, prepared.most), 2)
            rows.append((now() - began, repetitions.start[0] - began, sum(repetitions.seconds)))
    (host, start, event), (more_host, _, more_event) = rows
    yield within("event clock / host clock", (more_event - event) / (more_host - host), 0.97, 1.03)
    yield passed("start on the host's clock", -0.001 <= start <= host, f"{start:.4g} s", f"0 to {host:.4g} s")


def flush(bed: Bed) -> Iterator[Check]:
    """A small array read once after a flush comes from memory, read again and again from the cache."""
    cache = bed.backend.device.last_level_cache_bytes
    point = bed.first(lambda p: p.family == "stream" and p.kernel == "read")
    if bed.simulated or point is None or not cache:
        yield skipped("flush", NO_HARDWARE if bed.simulated else "no cache, or no read kernel")
        return
    with bed.prepared(sized(point, bytes=cache // 4)) as prepared:
        cold = bed.fastest(prepared, prepared.least, 20) / prepared.least
        often = min(256, prepared.most)
        warm = bed.fastest(prepared, often, 5) / often
    yield within("flush: cold / warm time of L2/4", cold / warm, 1.15, 50.0)


def levels(bed: Bed) -> Iterator[Check]:
    """Nearer levels are faster, by bandwidth and by latency."""
    rates = {level: rate for level in ("L1", "L2") if (rate := _beta(bed, level))}
    if len(rates) < 2:
        yield skipped("L1 / L2 bandwidth", f"only {', '.join(rates) or 'no level'} is measured here")
    else:
        yield within("L1 / L2 bandwidth", rates["L1"] / rates["L2"], 1.2, 20.0)
    waits = [_chase(bed, level) for level in ("L1", "L2", "DRAM")]
    found = [wait for wait in waits if wait]
    if len(found) < 3:
        yield skipped("latency L1 < L2 < DRAM", "not all of them are measured here")
    else:
        said = ", ".join(f"{wait * 1e9:.3g} ns" for wait in found)
        yield passed("latency L1 < L2 < DRAM", found[0] < found[1] < found[2], said, "rising")


def _beta(bed: Bed, level: str) -> float:
    """Byte/s of the first read point of a level, 0 where there is none."""
    point = bed.first(lambda p: p.family == "cache" and (p.level, p.access) == (level, "read"))
    if point is None:
        return 0.0
    with bed.prepared(point) as prepared:
        amount = bed.amount(prepared, SHORT)
        return prepared.work(amount).bytes(level) / bed.fastest(prepared, amount)


def _chase(bed: Bed, level: str) -> float:
    """Seconds of one load of the only chain in a level, 0 where there is none."""
    point = bed.first(lambda p: p.family == "latency" and p.level == level and "plateau" in p.sizes)
    if point is None:
        return 0.0
    with bed.prepared(point) as prepared:
        amount = bed.amount(prepared, SHORT)
        loads = prepared.work(amount).bytes(level) / point.sizes.get("line", 128)
        return bed.fastest(prepared, amount) / loads


L2_AT_LEAST = {"H200": 9.8e12}
"""Byte/s that L2 gives at its best working set, by board: RRZE gpu-benches, gpu-l2-cache, H200 at 1.98 GHz,
sets from 8 to 21 MB."""


def l2(bed: Bed) -> Iterator[Check]:
    """L2 at its best working set reaches what others have published for this board."""
    name, board = "L2 bandwidth", bed.backend.device.name
    known = next((rate for words, rate in L2_AT_LEAST.items() if words in board), 0.0)
    candidates = [p for p in bed.supported(("cache",)) if p.level == "L2" and p.access == "read"]
    flat = {(p.variant, p.sizes["bytes"]): p for p in candidates if "plateau" in p.sizes}
    if not flat:
        yield skipped(name, "no set in L2 is measured here")
        return
    rates = {key: _beta_of(bed, point) for key, point in flat.items()}
    (variant, _), best = max(rates.items(), key=lambda item: item[1])
    said = f"{best / 1e12:.3g} TB/s, {variant}"
    yield (
        passed(name, best >= known, said, f"at least {known / 1e12:.3g} TB/s")
        if known
        else Check(name, OK, said, "told, not judged")
    )


def _beta_of(bed: Bed, point: Point) -> float:
    with bed.prepared(point) as prepared:
        amount = bed.amount(prepared, SHORT)
        return prepared.work(amount).bytes(point.level) / bed.fastest(prepared, amount)


def starts(bed: Bed) -> Iterator[Check]:
    """A start costs microseconds; one of a replayed graph costs no more than one by itself, a wait more."""
    found = {p.variant: p for p in bed.supported(("launch",)) if p.kernel == "empty"}
    if not {"plain", "graph", "sync"} <= {*found}:
        yield skipped("starts of a kernel", "not all ways of starting are measured here")
        return
    seconds = {}
    for variant in ("plain", "graph", "sync"):
        with bed.prepared(found[variant]) as prepared:
            amount = min(128, prepared.most) if variant != "sync" else 20
            seconds[variant] = bed.fastest(prepared, amount) / amount
    yield within("start of a kernel", 1e6 * seconds["plain"], 0.2, 50.0, "us")
    yield within("start in a graph / by itself", seconds["graph"] / seconds["plain"], 0.05, 1.2)
    yield within("round trip / start", seconds["sync"] / seconds["plain"], 1.0, 100.0)


def telemetry(bed: Bed) -> Iterator[Check]:
    """Clock, power and temperature of busy repetitions are possible ones."""
    facts, point = bed.backend.device.facts, bed.first(lambda p: p.family == "fma")
    if point is None:
        yield skipped("telemetry", "no chain of multiply-adds runs here")
        return
    with bed.prepared(point) as prepared:
        seen = bed.backend.measure(prepared, bed.amount(prepared, LONG), 4)
    top = float(facts.get("max_sm_clock_hz") or 5e9)
    limit = float(facts.get("power_limit_w") or 2000.0)
    yield _plausible("SM clock under load", seen.clock_hz, 0.15 * top, 1.02 * top, "Hz")
    yield _plausible("board power under load", seen.power_w, 3.0, 1.3 * limit, "W")
    yield _plausible("temperature under load", seen.temperature_c, 10.0, 110.0, "degC")


def _plausible(name: str, values: Iterable[float], low: float, high: float, unit: str) -> Check:
    known = list(values)
    return within(name, median(known), low, high, unit) if known else skipped(name, "not told by this device")


def out_of_memory(bed: Bed) -> Iterator[Check]:
    """Arrays that cannot fit are refused in words, and what comes after works."""
    point = bed.first(lambda p: p.family == "stream")
    if point is None:
        yield skipped("out of memory", "no stream runs here")
        return
    name, whole = "arrays beyond the memory", bed.backend.device.memory_bytes
    try:
        with bed.prepared(sized(point, bytes=whole)) as prepared:
            got = prepared.point.sizes["bytes"]
        if bed.simulated and got >= whole:
            yield skipped(name, "the memory of this simulation has no end")
        else:
            yield passed(name, got < whole, f"made {got} byte", f"refused, or below {whole} byte")
    except (MemoryError, BenchError) as error:
        yield Check(name, OK, f"refused: {error}", "refused in words")
    yield from _still_right(bed, point, "a small array afterwards")


def second_stream(bed: Bed) -> Iterator[Check]:
    """What is timed runs on the stream of its events, whichever stream is current: ours and the library's."""
    for family in ("fma", "gemm"):
        name, point = f"{family} on its own stream", bed.first(lambda p: p.family == family)  # noqa: B023
        if bed.simulated or bed.backend.device.kind != "cuda" or point is None:
            yield skipped(name, NO_HARDWARE)
            continue
        from bench.gpucheck.by_cupy import another_stream

        with bed.prepared(point) as prepared:
            amount = bed.amount(prepared, SHORT)

            def seconds(others: int, prepared: Prepared = prepared, amount: int = amount) -> float:
                with another_stream() if others else nullcontext():
                    return bed.fastest(prepared, amount, 2)

            ratio = interleaved(seconds, 0, 1)
        yield within(name, ratio, 0.9, 1.1)


def fault_of_a_child(bed: Bed) -> Iterator[Check]:
    """A process that loses its context to an illegal address costs this one nothing."""
    name, point = "illegal address in a child", bed.first(lambda p: p.family in ("fma", "stream"))
    if bed.simulated or bed.backend.device.kind != "cuda" or point is None:
        yield skipped(name, NO_HARDWARE)
        return
    from bench.gpucheck.by_cupy import faulty_child

    said = faulty_child()
    yield skipped(name, said) if said.startswith("busy") else passed(name, said == "fault", said, "fault")
    yield from _still_right(bed, point, "this process afterwards")


def _still_right(bed: Bed, point: Point, name: str) -> Iterator[Check]:
    with bed.prepared(sized(small(point), **_bytes(point))) as prepared:
        bed.backend.verify(prepared)
    yield Check(name, OK, "right", "equal to the reference")


def _bytes(point: Point) -> dict[str, int]:
    return {"bytes": min(SMALL, point.sizes["bytes"])} if "bytes" in point.sizes else {}


CHECKS: dict[str, Callable[[Bed], Iterable[Check]]] = {
    "results": results,
    "layouts": layouts,
    "event clock": event_clock,
    "telemetry": telemetry,
    "doubled flops": doubled_flops,
    "doubled bytes": doubled_bytes,
    "more intensity": more_intensity,
    "flush": flush,
    "levels": levels,
    "L2": l2,
    "PyTorch": against_torch,
    "starts": starts,
    "links": links,
    "second stream": second_stream,
    "out of memory": out_of_memory,
    "fault of a child": fault_of_a_child,
}
"""In this order: right results first, what may cost the GPU its patience last."""
