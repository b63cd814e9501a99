"""Self-checks on every ceiling: each says ok, fails or not tested, with its evidence, from the samples alone.

A check fails only where the whole interval of what was measured lies outside what the check allows: noise
makes it say less, not something wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from bench.fitting import checks_conditions, checks_doubling, checks_neighbours
from bench.fitting.evidence import Evidence, quantile_of
from bench.fitting.intervals import student
from bench.fitting.pooled import Pooled
from bench.profile.records import Ceiling, Sample
from bench.profile.verdict import fails, ok, untested
from bench.report.units import counted, number, percent

CLEAR = 1.25
"""Factor between a kernel's intensity and the ridge from which it is surely on its side: even where memory
and arithmetic overlap well (p = 4) the other resource costs 9 % there, and more nearer the ridge."""

NEW_ROUND = 0.999
"""Confidence of the interval in which the earlier rounds predict the last one. A profile holds some thirty
ceilings: at 0.95 one of them would fail in most runs of a healthy device."""

FEWEST_ROUNDS = 4
"""Rounds from which the last can be compared with the others: three are the fewest that show a scatter."""

Check = Callable[[Ceiling, Pooled, Evidence], str]


def checked(
    found: Sequence[tuple[Ceiling, Pooled]],
    points: Sequence[Pooled],
    device: Mapping[str, Any],
    samples: Sequence[Sample] = (),
) -> list[Ceiling]:
    """Every ceiling with the verdicts of all checks that concern its quantity, in the order of CHECKS.

    found: ceilings with the point that won;  points: all points of the run;  device: as in a run's header
    samples: the raw ones, failures among them
    """
    evidence = Evidence(tuple(points), tuple(c for c, _ in found), device, tuple(samples))
    return [replace(c, checks={**c.checks, **_verdicts(c, best, evidence)}) for c, best in found]


def _verdicts(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> dict[str, str]:
    roof = ceiling.quantity in ("pi", "beta") and best.point.family in OF_ROOF
    known = CHECKS if roof else OF_ANY
    made = {name: check(ceiling, best, evidence) for name, check in known.items()}
    return {name: said for name, said in made.items() if said}


def side(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """Whether the kernel lies on the right side of the ridge, and how far from it."""
    compute, intensity = ceiling.quantity == "pi", _intensity(best)
    if intensity in (0.0, math.inf):
        return ok("it moves no bytes, at any bandwidth" if compute else "it does no arithmetic, at any rate")
    other = evidence.slowest_memory(ceiling) if compute else evidence.arithmetic(ceiling)
    if other is None:
        what = "bandwidth of DRAM" if compute else f"π of {ceiling.precision.inputs}"
        return untested(f"no {what} was measured on as many threads, so no ridge is known")
    pi, beta = (ceiling, other) if compute else (other, ceiling)
    ridge = pi.estimate.value / beta.estimate.value
    margin = intensity / ridge if compute else ridge / intensity
    place = "above" if compute else "below"
    said = f"{number(intensity)} FLOP/byte, {number(margin)} times {place} the ridge at {number(ridge)}"
    return ok(said) if margin >= CLEAR else fails(f"{said}: {number(CLEAR)} is the least")


def _intensity(best: Pooled) -> float:
    return best.flops / best.bytes if best.bytes else math.inf


def verified(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """Whether the kernel's result was compared with its reference before it was timed."""
    wrong = [s.round for s in evidence.samples if _is_refuted(s, best)]
    if wrong:
        return fails(f"its result differed from the reference in round {', '.join(map(str, sorted(wrong)))}")
    told = [s for s in best.samples if s.facts.get("verified") is True]
    if len(told) < len(best.samples):
        return untested("its samples do not say whether the result was compared with the reference")
    rounds = len(best.by_round)
    return ok(f"compared with its reference before it was timed, in {counted(rounds, 'round')}")


def _is_refuted(sample: Sample, best: Pooled) -> bool:
    mine, other = best.point, sample.point
    same = (mine.kernel, mine.variant, mine.precision, mine.store, mine.threads)
    refuted = sample.facts.get("verified") is False
    return refuted and same == (other.kernel, other.variant, other.precision, other.store, other.threads)


def round_agrees(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """Whether the last round lies where the earlier ones predict a further one."""
    values = list(best.rounds(quantile_of(ceiling)).values())
    if len(values) < FEWEST_ROUNDS:
        return untested(f"{counted(len(values), 'round')}, {FEWEST_ROUNDS} are needed")
    logs = [math.log(value) for value in values]
    earlier, n = logs[:-1], len(logs) - 1
    off = logs[-1] - fmean(earlier)
    reach = student(n - 1, NEW_ROUND) * stdev(earlier) * math.sqrt(1 + 1 / n)
    where = "above" if off > 0 else "below"
    said = f"the last round lies {percent(abs(math.expm1(off)))} {where} the mean of {n} earlier ones"
    allowed = max(reach, math.log1p(ceiling.cap))
    if abs(off) <= allowed:
        return ok(said)
    return fails(f"{said}, which predict it to within {percent(math.expm1(allowed))}")


def repetitions(ceiling: Ceiling, best: Pooled, evidence: Evidence) -> str:
    """Whether rounds had to use disturbed repetitions, because too few were clean."""
    fallen, rounds = len(best.fallen), len(best.by_round)
    if fallen:
        return fails(f"too few were clean in {fallen} of {rounds} rounds, so all were used")
    return ok(f"{percent(1 - best.contended)} of them were clean")


CHECKS: Mapping[str, Check] = {
    "side": side,
    "double flops": checks_doubling.flops,
    "double bytes": checks_doubling.bytes,
    "power and clock": checks_conditions.power_and_clock,
    "verified": verified,
    "array size": checks_conditions.array_size,
    "window": checks_conditions.window,
    "round agrees": round_agrees,
    "neighbours": checks_neighbours.neighbours,
    "repetitions": repetitions,
}
"""Every check by its name, in the order of the report; "" from one that does not concern a ceiling."""

OF_ANY: Mapping[str, Check] = {name: CHECKS[name] for name in ("verified", "round agrees", "repetitions")}
"""Those that make sense for a time, a size or a link as well."""

OF_ROOF = ("fma", "tensor", "gemm", "stream", "cache")
"""Families whose ceilings lie on a side of a ridge."""
