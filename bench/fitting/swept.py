"""The sweeps of the hierarchy as curves: latency, concurrency, cores, link, collective, launch, overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from bench.fitting import alpha_beta, level_names, levels, parallelism, pipelines
from bench.fitting.intervals import MEDIAN, P75, interval, quantile
from bench.fitting.pooled import Pooled, whole_rounds, winner
from bench.profile.records import Curve, CurvePoint, Interval, Point
from kernels.latency import LINE_BYTES

REACHED = 0.5
"""Share of beta that the largest transfer must reach for beta to be a figure of the link."""

FACTORS: dict[str, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "all-to-all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
}
"""Bus over algorithm bandwidth, the convention of NCCL's tests: what a link of a flat ring carries."""

CONVENTION = (
    "algorithm bandwidth: bytes of the whole array over time; bus bandwidth: that times the factor (NCCL)"
)

MOST_VISITS = 1 << 16
"""More than a round pays to any point."""


def line_bytes(pooled: Pooled) -> int:
    """Bytes of one access of a chase: a line of the CPU's caches where its points do not say."""
    sizes = pooled.point.sizes
    return int(sizes.get("line", pooled.samples[0].facts.get("line_bytes", LINE_BYTES)))


def chains(pooled: Pooled) -> int:
    """Independent chains a thread, by the variant's name ("4 chains"); 1 where it does not say."""
    number = pooled.point.variant.split(" ")[0]
    return int(number) if number.isdigit() else 1


Swept = tuple[Curve, tuple[Pooled, ...]]
"""A curve, and the points of a link, collective or launch that its alpha and beta are about."""


def curves(points: Iterable[Pooled], device: Mapping[str, Any]) -> list[Swept]:
    """Every sweep of the hierarchy among `points`, each with what it shows."""
    usable = [p for p in points if p.regime == "typical" and p.point.operands == "random"]
    found: list[Swept] = [
        (c, ()) for c in (*_latency(usable, device), *_concurrency(usable), *_cores(usable))
    ]
    found += _transfers(usable)
    return found + [(curve, ()) for curve in pipelines.curves(usable)]


def clock(pooled: Pooled) -> float | None:
    """The clock held, Hz: median over all repetitions that saw one."""
    seen = [hz for sample in pooled.samples for hz in sample.repetitions.clock_hz if hz]
    return median(seen) if seen else None


def _groups(points: Iterable[Pooled], *names: str) -> list[list[Pooled]]:
    """Points that agree in the named fields, in order of these."""
    groups: dict[tuple[Any, ...], list[Pooled]] = {}
    for pooled in points:
        groups.setdefault(tuple(getattr(pooled.point, name) for name in names), []).append(pooled)
    return [groups[key] for key in sorted(groups, key=str)]


Place = tuple[float, Pooled, dict[int, float]]
"""x, the winning candidate there, and its rate in every round."""


def _places(candidates: Sequence[Pooled], xs: Sequence[float], share: float = MEDIAN) -> list[Place]:
    """The fastest candidate at each x, rising, with its rates of every round."""
    groups: dict[float, list[Pooled]] = {}
    for x, pooled in zip(xs, candidates, strict=True):
        groups.setdefault(x, []).append(pooled)
    best = [(x, winner(groups[x], share)) for x in sorted(groups)]
    return [(x, pooled, pooled.rounds(share)) for x, pooled in best]


def _matrix(places: Sequence[Place]) -> tuple[tuple[int, ...], list[list[float]]]:
    """Rounds that most places have, and the rates of each place in them, its median where it lacks one."""
    whole = whole_rounds([set(rates) for _, _, rates in places])
    if not whole:
        return (), [[median(rates.values())] for _, _, rates in places]
    return whole, [[rates.get(number, median(rates.values())) for number in whole] for _, _, rates in places]


def passes(points: Sequence[Pooled], share: float = MEDIAN) -> list[list[float]]:
    """Rates of the points of a sweep in every pass (a visit of a round) that most of them have, n x passes.

    A pass is the sweep at one time: what disturbs a moment of it shows in a few points of one pass only.
    """
    found = []
    for pooled in points:
        timed: dict[int, list[float]] = {}
        for sample, rates in zip(pooled.samples, pooled.rates, strict=True):
            timed.setdefault(MOST_VISITS * sample.round + sample.visit, []).extend(rates.rates)
        found.append({number: quantile(rates, share) for number, rates in timed.items() if rates})
    whole = whole_rounds([set(rates) for rates in found])
    if not whole:
        return [[median(rates.values())] for rates in found]
    return [[rates.get(number, median(rates.values())) for number in whole] for rates in found]


def _curve(
    kind: str, mode: str, unit: str, places: Sequence[Place], plateaus: Mapping[str, Any], times: bool = False
) -> Curve:
    """The curve of places, as rates or as times of `amount` (bytes of an access, or one execution)."""
    first = places[0][1].point
    whole, _ = _matrix(places)
    points = []
    for x, pooled, rates in places:
        amount = _amount(kind, pooled)
        values = [amount / rate if times else rate for rate in rates.values()]
        aligned = tuple(amount / rates[n] if times else rates[n] for n in whole if n in rates)
        estimate = interval(values)
        seconds = estimate.value if times else _moved(pooled) / estimate.value
        shown = aligned if len(aligned) == len(whole) else ()
        point = CurvePoint(x, estimate, pooled.flops, _moved(pooled), seconds, shown, pooled.point.variant)
        points.append(CurvePoint(**{**vars(point), "clock_hz": clock(pooled)}))
    threads = max(pooled.point.threads for _, pooled, _ in places)
    return Curve(kind, mode, first.precision, first.scope, threads, unit, tuple(points), (), plateaus)


def _amount(kind: str, pooled: Pooled) -> float:
    """What the time of a curve's point is the time of, in the unit of the pooled rate."""
    return float(line_bytes(pooled) * chains(pooled) * pooled.point.threads) if kind == "latency" else 1.0


def _moved(pooled: Pooled) -> float:
    """Bytes of one execution; of a repetition where executions are not counted."""
    amount = median(float(s.facts.get("amount", 1)) for s in pooled.samples)
    return (
        pooled.bytes / amount
        if pooled.point.family in ("link", "collective", "launch", "overlap")
        else pooled.bytes
    )


def _latency(points: Sequence[Pooled], device: Mapping[str, Any]) -> Iterator[Curve]:
    """Chases of one chain over working sets."""
    single = [
        p
        for p in points
        if p.point.family == "latency" and "plateau" not in p.point.sizes and chains(p) * p.point.threads == 1
    ]
    for group in _groups(single, "kernel", "scope"):
        places = _places(group, [float(p.point.sizes["bytes"]) for p in group])
        if len(places) > 1:
            rates = passes([p for _, p, _ in places])
            amount = [_amount("latency", p) for _, p, _ in places]
            speeds = [[rate / a for rate in row] for row, a in zip(rates, amount, strict=True)]
            found = staircase([x for x, _, _ in places], speeds, device, 1, times=True)
            yield _curve("latency", group[0].point.kernel, "s", places, found, times=True)


def staircase(
    sizes: Sequence[float],
    rates: Sequence[Sequence[float]],
    device: Mapping[str, Any],
    threads: int,
    times: bool = False,
) -> dict[str, Any]:
    """{"levels": [...], "not_visible": [...]} of a sweep over working sets; {} where it is too short to tell.

    rates: n x passes, which the records count as rounds;  times: they are of accesses, whose reciprocals are
    to be said
    """
    known = level_names.reported(device, threads)
    is_gpu = device.get("facts", {}).get("unit") == "SM"
    found = level_names.named(levels.detect(sizes, rates), known, is_gpu, max(sizes, default=None))
    if not found:
        return {}
    records = [level.record for level in found]
    for record in records if times else ():
        low, high = record["value_low"], record["value_high"]
        ends = {"value_low": 1 / high if high else None, "value_high": 1 / low if low else None}
        record.update(value=1 / record["value"], **ends)
    return {"levels": records, "not_visible": level_names.invisible(found, known)}


def _concurrency(points: Sequence[Pooled]) -> Iterator[Curve]:
    """Chases of several chains over one working set: byte/s against bytes in flight."""
    chases = [p for p in points if p.point.family == "latency"]
    by_set: dict[tuple[Any, ...], list[Pooled]] = {}
    for p in chases:
        key = p.point.kernel, p.point.level, p.point.sizes["bytes"], p.point.scope, p.point.threads
        by_set.setdefault(key, []).append(p)
    for key, group in sorted(by_set.items(), key=lambda item: str(item[0])):
        in_flight = [float(chains(p) * line_bytes(p) * p.point.threads) for p in group]
        places = _places(group, in_flight)
        if len(places) < 3:
            continue
        rates = [median(of.values()) for _, _, of in places]
        alone = next(
            (line_bytes(p) / r for (_, p, _), r in zip(places, rates, strict=True) if chains(p) == 1), None
        )
        if alone is not None:
            alone *= key[4]
        found = parallelism.concurrency([x for x, _, _ in places], rates, alone)
        yield _curve(
            "concurrency", str(key[1]), "byte/s", places, {"level": key[1], "working_set": key[2], **found}
        )


def _cores(points: Sequence[Pooled]) -> Iterator[Curve]:
    """The kernels of other families on fewer threads or SMs, with those on all of them; on several GPUs."""
    fewer = [p for p in points if p.point.family == "scaling"]
    names = ("kernel", "level", "access", "store", "precision")
    boards = [p for p in fewer if "devices" in p.point.sizes]
    for group in (*_groups([p for p in fewer if p not in boards], *names), *_groups(boards, *names)):
        first, several = group[0].point, group[0] in boards
        own = {p.point.threads for p in group}
        full = [
            p
            for p in points
            if p.point.family in ("fma", "stream", "cache")
            and (p.point.kernel, p.point.level, p.point.store) == (first.kernel, first.level, first.store)
            and p.point.precision == first.precision
            and (p.point.family != "cache" or "plateau" in p.point.sizes)
            and p.point.threads > max(own)
        ]
        moves = first.access != "none"
        group = group + full
        units = [float(p.point.sizes["devices"] if several else p.point.threads) for p in group]
        places = _places(group, units, MEDIAN if moves else P75)
        if len(places) > 1:
            found = parallelism.cores([x for x, _, _ in places], [median(r.values()) for _, _, r in places])
            words = (first.level, first.kernel, _type(first, fewer), "by GPUs" if several else "")
            mode = " ".join(filter(None, words))
            unit = "byte/s" if moves else "FLOP/s"
            yield _curve("cores", mode, unit, places, {"level": first.level, **found})


def _type(point: Point, fewer: Sequence[Pooled]) -> str:
    """The precision of a curve over units where the same loop was run in several, "" else."""
    same = [p.point for p in fewer if (p.point.kernel, p.point.level) == (point.kernel, point.level)]
    return point.precision.label if len({p.precision for p in same}) > 1 else ""


def _transfers(points: Sequence[Pooled]) -> Iterator[Swept]:
    """Curves over transfer sizes with a fitted alpha and beta, each with its points."""
    sized = [
        p for p in points if p.point.sizes.get("bytes") and p.point.family in ("link", "collective", "launch")
    ]
    names = ("family", "kernel", "variant", "level", "access", "scope", "threads")
    for group in _groups(sized, *names):
        for part in _by_devices(group):
            places = _places(part, [float(p.point.sizes["bytes"]) for p in part])
            if len(places) > 1 or (places and part[0].point.family != "launch"):
                yield _transfer(places), tuple(pooled for _, pooled, _ in places)


def _by_devices(group: Sequence[Pooled]) -> list[list[Pooled]]:
    """A collective of each number of devices is a sweep of its own."""
    parts: dict[int, list[Pooled]] = {}
    for p in group:
        parts.setdefault(p.point.sizes.get("devices", 0), []).append(p)
    return [parts[key] for key in sorted(parts)]


def _transfer(places: Sequence[Place]) -> Curve:
    point = places[0][1].point
    _, rates = _matrix(places)
    volumes = [_moved(pooled) for _, pooled, _ in places]
    launches = point.family == "launch"
    times = [[(1 if launches else v) / rate for rate in row] for v, row in zip(volumes, rates, strict=True)]
    names = ("level", "kernel", "variant", "access")
    found: dict[str, Any] = {name: getattr(point, name) for name in names}
    fitted = alpha_beta.fit(volumes, times)
    if fitted:
        found |= _line_record(fitted)
    if point.family == "collective":
        found |= _bus(point.kernel, int(point.sizes.get("devices", 1)), found.get("beta"))
    access = "" if point.access == "none" else point.access
    mode = " ".join(filter(None, (point.level, point.kernel, point.variant, access)))
    return _curve(point.family, mode, "s" if launches else "byte/s", places, found, times=launches)


def _line_record(fitted: alpha_beta.AlphaBeta) -> dict[str, Any]:
    """A fit as plain values; of an alpha that the sizes do not tell, and so of n half, the most it can be."""

    def ends(name: str, value: Interval) -> dict[str, Any]:
        return {f"{name}_low": value.low, f"{name}_high": value.high}

    start = {"alpha_s": fitted.alpha.value, **ends("alpha", fitted.alpha)}
    half = {"half_bytes": fitted.half_bytes.value, **ends("half", fitted.half_bytes)}
    if not fitted.has_alpha:
        most = fitted.shortest
        start = {"alpha_s": None, "alpha_low": None, "alpha_high": most}
        half = {"half_bytes": None, "half_low": None, "half_high": most * fitted.beta.value}
    return {
        "form": fitted.form,
        **start,
        "beta": fitted.beta.value,
        **ends("beta", fitted.beta),
        **half,
        "lines": [list(line) for line in fitted.lines],
        "rms": fitted.rms,
        "aicc": {form: score for form, score in fitted.aicc.items() if score < float("inf")},
        "reached_share": fitted.reached,
    }


def _bus(kernel: str, devices: int, beta: float | None) -> dict[str, Any]:
    """Bus bandwidth beside the algorithm's, with the convention."""
    factor = FACTORS[kernel](devices) if kernel in FACTORS and devices > 0 else None
    found: dict[str, Any] = {"devices": devices, "bus_factor": factor, "convention": CONVENTION}
    return found | ({"bus_beta": beta * factor} if beta and factor else {})
