"""The parts of the printed report about the roof itself: ceilings π and β, and the fitted curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from bench.profile.records import Ceiling, Curve, Fit, Interval, Placement, Profile
from bench.report import bands, checks, grid, heading, normality, roofs
from bench.report.grid import NUMBERS, WORDS, Side
from bench.report.units import UNKNOWN, bare, bound, counted, number, percent, plus_minus, si

BYTES = (
    "bytes = streams × item size (R loaded, W stored); nt = non-temporal store. 'allocate' is what ordinary "
    "stores load on top, per counted byte: never part of β."
)

COMPUTE: tuple[tuple[str, Side], ...] = (
    ("precision", WORDS),
    ("π", NUMBERS),
    ("95 %", NUMBERS),
    ("best", NUMBERS),
    ("1 thread", NUMBERS),
    ("clock", NUMBERS),
    ("/cycle", NUMBERS),
    ("in theory", NUMBERS),
    ("datasheet", NUMBERS),
    ("energy", NUMBERS),
    ("kernel", WORDS),
    ("verdict", WORDS),
)

MEMORY: tuple[tuple[str, Side], ...] = (
    ("level", WORDS),
    ("access", WORDS),
    ("bytes", WORDS),
    ("store", WORDS),
    ("β", NUMBERS),
    ("95 %", NUMBERS),
    ("best", NUMBERS),
    ("1 thread", NUMBERS),
    ("allocate", NUMBERS),
    ("in theory", NUMBERS),
    ("datasheet", NUMBERS),
    ("energy", NUMBERS),
    ("variant", WORDS),
    ("verdict", WORDS),
)

FITS: tuple[tuple[str, Side], ...] = (
    ("", WORDS),
    ("sweep", WORDS),
    ("π", NUMBERS),
    ("95 %", NUMBERS),
    ("β", NUMBERS),
    ("95 %", NUMBERS),
    ("ridge", NUMBERS),
    ("95 %", NUMBERS),
    ("overlap ω", NUMBERS),
    ("rms", NUMBERS),
    ("form", WORDS),
)


def threads(part: Ceiling | Curve | Placement, profile: Profile) -> str:
    """Named only where it is not the number of threads that the headline states."""
    same = part.threads == heading.threads(profile)
    return "" if same else f", {heading.counted(profile, part.threads)}"


def _shared_verdict(rows: Sequence[roofs.Row]) -> str:
    verdicts = {_verdict(row) for row in rows}
    return verdicts.pop() if len(verdicts) == 1 else ""


def _verdict(row: roofs.Row) -> str:
    main = roofs.verdict(row.ceiling)
    alone = roofs.verdict(row.single) if row.single else main
    return main if alone in (main, "ok") else f"{main} (1 thread {alone})"


def _note(rows: Sequence[roofs.Row], shared: str) -> str:
    """How the values were drawn from the repetitions, and the verdict where all share it."""
    said = {"": "", "ok": "; all converged"}.get(shared, f"; all: {shared}")
    beside = [
        name
        for name, has in (
            ("best", any(r.ceiling.share_at_clock is None for r in rows)),
            ("1 thread", any(r.single for r in rows)),
        )
        if has
    ]
    told = f"; {' and '.join(beside)} in the unit of the value" if beside else ""
    return f"{_statistics([r.ceiling for r in rows])}{said}{told}"


def _statistics(ceilings: Sequence[Ceiling]) -> str:
    """Each statistic with the fewest and the most rounds that it is of: median of 5 to 7 rounds."""
    rounds: dict[str, list[int]] = {}
    for c in ceilings:
        rounds.setdefault(c.statistic, []).append(c.rounds)
    few = {name: f"{min(of)} to " if min(of) < max(of) else "" for name, of in rounds.items()}
    return " / ".join(f"{name} of {few[name]}{counted(max(of), 'round')}" for name, of in rounds.items())


def _cells(row: roofs.Row) -> tuple[str, str, str, str]:
    """Value, half-width, best and one-thread value of a row."""
    c = row.ceiling
    unit, value = c.unit, c.estimate.value
    single = row.single.estimate.value if row.single else None
    return (
        si(value, unit),
        plus_minus(c.estimate.half_width),
        bare(c.best, unit, value),
        bare(single, unit, value),
    )


def compute(profile: Profile) -> Iterable[Text | Table]:
    """The section of every measured π, nothing when there is none."""
    rows, others = _usual(roofs.rows(c for c in profile.ceilings if c.quantity == "pi"))
    if not rows:
        return
    shared = _shared_verdict(rows)
    yield grid.section("Compute ceilings π", _note(rows, shared))
    yield grid.table(COMPUTE, (_compute_line(row, profile, shared) for row in rows))
    yield from _circumstanced(rows, others)
    yield from _textbook(profile)
    if libraries := profile.facts.get("libraries"):
        yield Text(f"library: {', '.join(libraries)}", style="dim")
    yield from _checks(rows + others)
    yield from (Text(line, style="dim") for line in normality.lines(row.ceiling for row in rows))


def _compute_line(row: roofs.Row, profile: Profile, shared: str) -> Sequence[str]:
    c = row.ceiling
    label = " ".join((c.precision.label, *_circumstances(c))) + threads(c, profile)
    known = c.share_at_clock is not None  # which says the same, against the units that there are
    per_clock = number(c.per_clock_per_unit) if c.per_clock_per_unit and not known else ""
    clock = si(c.clock_hz, "Hz") if c.clock_hz else ""
    value, width, best, single = _cells(row)
    return (
        label,
        value,
        width,
        "" if known else best,
        single,
        clock,
        per_clock,
        *_worth(c),
        f"{c.kernel}, {c.variant}",
        "" if shared else _verdict(row),
    )


def _circumstances(c: Ceiling) -> list[str]:
    """Regime and operands, where they are not the usual ones."""
    regime = [] if c.regime == "typical" else [c.regime]
    return regime + ([] if c.operands == "random" else [c.operands])


def _worth(c: Ceiling) -> tuple[str, str, str]:
    """Shares of what the units could do at the clock held and of the datasheet; J per FLOP or byte."""
    share = "" if c.share_at_clock is None else percent(c.share_at_clock)
    return share, normality.share(c), "" if c.energy_j is None else si(c.energy_j, "J")


def _usual(rows: Sequence[roofs.Row]) -> tuple[list[roofs.Row], list[roofs.Row]]:
    """Rows of the table, and those that tell of a row in it what it is cold, after long load, or on zeros."""
    usual = {bands.same(row.ceiling) for row in rows if not _circumstances(row.ceiling)}
    others = [row for row in rows if _circumstances(row.ceiling) and bands.same(row.ceiling) in usual]
    return [row for row in rows if row not in others], others


def _circumstanced(usual: Sequence[roofs.Row], rows: Sequence[roofs.Row]) -> Iterable[Text]:
    """One line a ceiling: what it is in other circumstances, and the band over all of them as shares.

    "fp32 fma: burst 25.0 TFLOP/s at 1.56 GHz, sustained 19.3 TFLOP/s at 1.20 GHz; band 0.77 to 1.00: ..."
    """
    spans = {bands.same(band.ceilings[0]): band for band in bands.bands(r.ceiling for r in [*usual, *rows])}
    told: dict[tuple[object, ...], list[str]] = {}
    names: dict[tuple[object, ...], str] = {}
    for row in rows:
        c = row.ceiling
        names[bands.same(c)] = f"{c.precision.label if c.quantity == 'pi' else c.level} {c.kernel}"
        parts = [f"{' '.join(_circumstances(c))} {si(c.estimate.value, c.unit)}"]
        parts += [f"at {si(c.clock_hz, 'Hz')}"] if c.clock_hz else []
        parts += [f"({si(c.energy_j, 'J')}/{c.unit.removesuffix('/s')})"] if c.energy_j else []
        told.setdefault(bands.same(c), []).append(" ".join(parts))
    for key, lines in told.items():
        band = spans[key]
        said = f"{', '.join(lines)}; band {band.low:.2f} to {band.high:.2f}: {band.text}"
        yield Text(f"{names[key]}: {said}", style="dim")


def _checks(rows: Sequence[roofs.Row]) -> Iterable[Text]:
    """The self-checks that fail, of ceilings and of those on one thread beside them."""
    measured = [c for row in rows for c in (row.ceiling, row.single) if c]
    for line in checks.lines(measured):
        yield Text(line, style="yellow" if checks.MARK in line else "dim")


def _textbook(profile: Profile) -> Iterable[Text]:
    """What the readable loop reaches beside the ceilings of the same threads."""
    for label, loop in profile.facts.get("naive", {}).items():
        ratio = loop.get("ratio")
        share = f", {percent(ratio)} of π" if ratio else ""
        count = heading.counted(profile, loop["threads"])
        yield Text(
            f"textbook loop {label}: {si(loop['rate'], 'FLOP/s')} on {count}{share} "
            f"({loop['variant']}; shown beside, never a ceiling)",
            style="dim",
        )


def memory(profile: Profile) -> Iterable[Text | Table]:
    """The section of every measured β with its byte convention, nothing when there is none."""
    betas = (c for c in profile.ceilings if c.quantity == "beta" and not roofs.is_link(c))
    rows, others = _usual(roofs.rows(betas))
    if not rows:
        return
    shared = _shared_verdict(rows)
    yield grid.section("Memory ceilings β", _note(rows, shared))
    yield grid.table(MEMORY, (_memory_line(row, profile, shared) for row in rows))
    yield from _circumstanced(rows, others)
    yield Text(BYTES, style="dim")
    yield from _checks(rows + others)
    yield from (Text(line, style="dim") for line in normality.lines(row.ceiling for row in rows))


def _memory_line(row: roofs.Row, profile: Profile, shared: str) -> Sequence[str]:
    c = row.ceiling
    several = len({r.precision.label for r in profile.ceilings if r.quantity == "beta"}) > 1
    name = c.access if c.kernel.endswith(c.access) else f"{c.access} ({c.kernel})"
    if several:
        name += f" {c.precision.label}"
    name = " ".join((name, *_circumstances(c))) + threads(c, profile)
    store = {"nontemporal": "nt", "none": ""}.get(c.store, c.store)
    hidden = f"+{percent(c.hidden_traffic)}" if c.hidden_traffic else ""
    streams = roofs.STREAMS.get(c.access, "")
    value, width, best, single = _cells(row)
    return (
        c.level,
        name,
        streams,
        store,
        value,
        width,
        "" if c.share_at_clock is not None else best,
        single,
        hidden,
        *_worth(c),
        c.variant,
        "" if shared else _verdict(row),
    )


def fits(profile: Profile) -> Iterable[Text | Table]:
    """The section of the curve that was chosen for each intensity sweep."""
    fitted = [(c, fit) for c in profile.curves if c.kind == "mix" and (fit := roofs.chosen(c))]
    if not fitted:
        return
    yield grid.section("Fitted roof", "from the intensity sweeps; ridge in FLOP/byte")
    yield grid.table(FITS, (_fit_line(curve, fit, profile) for curve, fit in fitted))
    corners = sorted(1 / (2 - fit.omega.value) for _, fit in fitted if not _is_open(fit))
    if corners:
        yield Text(f"at its ridge a curve reaches {_ends(corners)} of the sharp corner", style="dim")
    for curve, fit in fitted:
        if fit.limits:
            yield Text(f"{curve.precision.label} {curve.mode}: {fit.limits}", style="yellow")


def _ends(shares: Sequence[float]) -> str:
    low, high = percent(shares[0]), percent(shares[-1])
    return low if low == high else f"{low} to {high}"


def _is_open(fit: Fit) -> bool:
    """Whether the sweep never reached one of the asymptotes, so that it says nothing of the ridge."""
    return fit.pi.is_bound or fit.beta.is_bound


def _fit_line(curve: Curve, fit: Fit, profile: Profile) -> Sequence[str]:
    sweep = curve.mode + threads(curve, profile)
    return (
        curve.precision.label,
        sweep,
        bound(fit.pi) + si(fit.pi.value, "FLOP/s"),
        plus_minus(fit.pi.half_width),
        bound(fit.beta) + si(fit.beta.value, "byte/s"),
        plus_minus(fit.beta.half_width),
        bound(fit.ridge) + number(fit.ridge.value),
        plus_minus(fit.ridge.half_width),
        UNKNOWN if _is_open(fit) else _range(fit.omega),
        percent(fit.rms),
        fit.form + (f" {number(fit.p, 2)}" if fit.p is not None else ""),
    )


def _range(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.value:.2f}"
    half = (interval.high - interval.low) / 2
    return f"{interval.value:.2f} ± {f'{half:.2f}' if half >= 0.005 else number(half, 1)}"
