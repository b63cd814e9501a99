"""Self-checks: what each says of sound samples, and one crafted input that fails each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bench.fitting.ceilings import ceilings
from bench.fitting.checks import CHECKS
from bench.fitting.pooled import pool
from bench.profile.records import Ceiling, Point, Precision, Repetitions, Sample
from bench.profile.verdict import FAILS, OK, UNTESTED, word

FP64 = Precision.of("fp64")
MIB = 1 << 20
PI, BETA = 80e9, 20e9
PEAK = Point("fma", "fma", "12 chains", FP64, threads=2)
READ = Point("stream", "read", "s3u4", FP64, "DRAM", "read", "none", threads=2, sizes={"bytes": 128 * MIB})
COPY = replace(READ, kernel="copy", access="copy", store="nontemporal")
MIX = Point("mix", "mix-read-only", "s6u2", FP64, "DRAM", "read", "none", threads=2)
L2 = Point("cache", "cache-read", "s1u8", FP64, "L2", "read", "none", threads=2)
GEMM = Point("gemm", "gemm", "square", Precision.of("fp64", "library"), "DRAM", threads=2)
CACHES = (
    {"level": "L1", "bytes": 32 << 10, "sharers": 1, "instances": 2},
    {"level": "L2", "bytes": 1 << 20, "sharers": 1, "instances": 2},
    {"level": "L3", "bytes": 16 << 20, "sharers": 2, "instances": 1},
)
DEVICE: dict[str, Any] = {"kind": "cpu", "name": "CPU", "state": "quiet", "caches": CACHES, "facts": {}}
WOBBLE = (1.0, 1.003, 0.998, 1.001, 0.999)
"""Of five rounds."""


def rounds(
    where: Point, rate: float, seconds: float = 2e-3, intensity: float = 0.125, **more: Any
) -> list[Sample]:
    """Five rounds of five repetitions of about `seconds` at `rate`: byte/s of streams, else FLOP/s.

    intensity: FLOP/byte, infinite for a kernel that moves nothing;  wobble: factor on the rate by round
    """
    wobble = more.pop("wobble", WOBBLE)
    facts = {"verified": True} | more.pop("facts", {})
    evidence = {k: more.pop(k) for k in ("clock_hz", "power_w", "throttle") if k in more}
    moves = where.family in ("stream", "cache")
    amount = rate * seconds
    flops, moved = (amount * intensity, amount) if moves else (amount, amount / intensity)
    made = []
    for number, factor in enumerate(wobble, 1):
        times = tuple(seconds / factor * (1 + 1e-4 * i) for i in range(5))
        repetitions = Repetitions(seconds=times, **{k: (v,) * 5 for k, v in evidence.items()})
        work = {"flops": flops, "bytes_read": moved, "repetitions": repetitions, "facts": facts}
        made.append(Sample(where, number, number, 0, **{**work, **more}))
    return made


def of_pi(rate: float = PI, **more: Any) -> list[Sample]:
    return rounds(more.pop("where", PEAK), rate, **{"intensity": math.inf, **more})


def of_beta(rate: float = BETA, **more: Any) -> list[Sample]:
    return rounds(more.pop("where", READ), rate, **{"seconds": 8e-3, **more})


def doubled(where: Point, rate: float, **more: Any) -> list[Sample]:
    """The same loop in repetitions of twice the time."""
    return rounds(replace(where, sizes={**where.sizes, "window": 4000}), rate, **more)


def sweep(
    rate: Mapping[float, float] | None = None, wobble: Sequence[float] = WOBBLE, turned: bool = False
) -> list[Sample]:
    """Intensities from 1/16 to 256 FLOP/byte under the roof of PI and BETA; `rate`: factors at some of them.

    turned: every setting has its own order of the rounds
    """
    found = []
    for power in range(-4, 9):
        intensity = 2.0**power
        sizes = {"bytes": 128 * MIB, "fma": round(48 * intensity)}
        where = replace(MIX, sizes=sizes)
        turn = power % len(wobble) if turned else 0
        value = min(PI, BETA * intensity) * (rate or {}).get(intensity, 1.0)
        found += rounds(
            where, value, seconds=4e-3, intensity=intensity, wobble=(*wobble[turn:], *wobble[:turn])
        )
    return found


SOUND = [
    *of_pi(),
    *doubled(PEAK, PI, seconds=4e-3, intensity=math.inf),
    *of_beta(),
    *doubled(READ, BETA, seconds=16e-3),
    *sweep(),
]


def checked(
    samples: Sequence[Sample], kernel: str, device: Mapping[str, Any] = DEVICE, regime: str = "typical"
) -> Ceiling:
    """The ceiling of `kernel` among what the samples make."""
    made = ceilings(pool(samples), device, samples)
    (found,) = (c for c in made if c.kernel == kernel and c.regime == regime)
    return found


def said(samples: Sequence[Sample], kernel: str, check: str, device: Mapping[str, Any] = DEVICE) -> str:
    return checked(samples, kernel, device).checks[check]


@pytest.mark.parametrize("kernel", ["fma", "read"])
def test_sound_samples_pass_all_that_this_device_lets_be_tested(kernel: str) -> None:
    told = checked(SOUND, kernel).checks
    wanted = dict.fromkeys(CHECKS, OK) | {"power and clock": UNTESTED}
    if kernel == "fma":
        del wanted["array size"]
    assert {name: word(text) for name, text in told.items()} == wanted, told


def test_every_answer_carries_its_evidence() -> None:
    told = checked(SOUND, "fma").checks
    assert told["side"] == "ok: it moves no bytes, at any bandwidth"
    assert told["double flops"] == (
        "ok: 2.00 times the flops in one repetition take 2.00 times as long ± 0 %, "
        "2.00 within 12 % is expected"
    )
    assert told["window"] == "ok: repetitions of 2.00 ms on the native clock, 500 µs is the least"
    assert told["verified"] == "ok: compared with its reference before it was timed, in 5 rounds"
    assert told["neighbours"] == "ok: 4 settings of mix-read-only reach 1.00 of it, without a jump"
    told = checked(SOUND, "read").checks
    assert told["side"] == "ok: 0.125 FLOP/byte, 32.0 times below the ridge at 4.00"
    assert told["array size"] == "ok: 1 x 128 MiB against 16 MiB of cache"


# side of the ridge


def test_a_stream_that_computes_too_much_is_on_the_wrong_side() -> None:
    heavy = [*of_pi(), *of_beta(intensity=3.5)]
    assert said(heavy, "read", "side") == (
        "fails: 3.50 FLOP/byte, 1.14 times below the ridge at 4.00: 1.25 is the least"
    )


def test_a_product_is_compared_with_the_slowest_memory() -> None:
    product = rounds(replace(GEMM, sizes={"m": 512, "n": 512, "k": 512}), 70e9, intensity=42.7)
    slow = of_beta(2e9, where=COPY, intensity=1e-9)
    told = said([*product, *of_beta(), *slow], "gemm", "side")
    assert told.startswith("fails: 42.7 FLOP/byte, 1.22 times above the ridge at 35.0"), told
    assert word(said([*product, *of_beta()], "gemm", "side")) == OK
    assert said(product, "gemm", "side").startswith("not tested: no bandwidth of DRAM was measured")
    assert said(of_beta(), "read", "side").startswith("not tested: no π of fp64")


# doubling


def test_a_chain_whose_time_does_not_follow_its_flops_fails() -> None:
    """A compiler that folds the loop: twice the steps, the same time."""
    folded = [*of_pi(), *doubled(PEAK, 2 * PI, seconds=2e-3, intensity=math.inf), *of_beta(), *sweep()]
    told = said(folded, "fma", "double flops")
    assert told.startswith("fails: 2.00 times the flops in one repetition take 1.00 times as long"), told


def test_without_a_longer_repetition_the_sweep_tells_of_a_pi() -> None:
    told = said([*of_pi(), *of_beta(), *sweep()], "fma", "double flops")
    assert told.startswith("ok: twice the flops at equal bytes (") and "2.00 times as long" in told
    slack = {2.0**p: 1.3**p / 1.3**4 for p in range(4, 9)}  # time grows by 1.54 where the flops double
    told = said([*of_pi(), *of_beta(), *sweep(slack)], "fma", "double flops")
    assert told.startswith("fails: twice the flops at equal bytes"), told
    assert said(of_pi(), "fma", "double flops").startswith("not tested: no repetition of twice the flops")


def test_a_pi_that_follows_its_bytes_fails() -> None:
    bound = {2.0**p: 2.0 ** (p - 8) for p in range(4, 9)}
    told = said([*of_pi(), *of_beta(), *sweep(bound)], "fma", "double bytes")
    assert told.startswith("fails: twice the bytes at equal flops (") and " take 2.00 times as long" in told


def test_a_beta_that_follows_its_flops_fails() -> None:
    bound = {2.0**p: 2.0**-p / 16 for p in range(-4, 9)}  # a constant rate: compute binds everywhere
    told = said([*of_pi(), *of_beta(), *sweep(bound)], "read", "double flops")
    assert told.startswith("fails: twice the flops at equal bytes (") and " take 2.00 times as long" in told


def test_a_beta_whose_time_does_not_follow_its_bytes_fails() -> None:
    stuck = [*of_beta(), *doubled(READ, 1.5 * BETA, seconds=10.7e-3)]
    told = said(stuck, "read", "double bytes")
    assert told.startswith("fails: 2.01 times the bytes in one repetition take 1.34 times as long"), told
    assert said(of_beta(), "read", "double bytes").startswith("not tested: no repetition of twice the bytes")
    alike = [*of_beta(), *doubled(READ, BETA, seconds=9e-3)]
    assert (
        said(alike, "read", "double bytes")
        == "not tested: the longer repetition did only 1.12 times the work"
    )


def test_streams_that_differ_by_one_flop_tell_of_each_other() -> None:
    scale = replace(COPY, kernel="scale")
    both = [*of_pi(), *of_beta(where=COPY), *of_beta(where=scale)]
    assert said(both, "copy", "double flops").startswith(
        "ok: one FLOP an item more at equal bytes (scale for"
    )
    slow = [*of_pi(), *of_beta(where=COPY), *of_beta(BETA / 1.5, where=scale)]
    assert said(slow, "copy", "double flops").startswith("fails: one FLOP an item more")
    assert word(said(of_beta(where=COPY), "copy", "double flops")) == UNTESTED


def test_scatter_that_hides_the_answer_is_not_taken_for_one() -> None:
    wild = (1.0, 2.5, 0.5, 1.7, 0.6)
    noisy = [*of_pi(), *doubled(PEAK, PI, seconds=4e-3, intensity=math.inf, wobble=wild)]
    told = said(noisy, "fma", "double flops")
    assert word(told) == UNTESTED and told.endswith("that scatter hides the answer")


def test_a_burst_is_not_doubled() -> None:
    both = [*SOUND, *of_pi(1.1 * PI, regime="burst")]
    told = checked(both, "fma", regime="burst").checks
    assert told["double flops"] == "not tested: doubled in the typical regime only"
    assert word(told["neighbours"]) == UNTESTED and word(told["window"]) == OK


# conditions


@pytest.mark.parametrize(
    ("clock", "throttle", "facts", "told"),
    [
        (3e9, "", {}, "ok: 3.00 GHz, 1.00 of the highest of this run"),
        (3e9, "", {"clock_hz": 3.2e9}, "ok: 3.00 GHz, 1.00 of the highest of this run and 0.938 of 3.20 GHz"),
        (2e9, "", {"clock_hz": 3.2e9}, "fails: 2.00 GHz, 1.00 of the highest of this run and 0.625 of 3.20"),
        (3e9, "hw_thermal", {}, "fails: hw thermal held the clock back in 100 % of it"),
        (2e9, "sw_power_cap", {"clock_hz": 3.2e9}, "ok: 2.00 GHz, 1.00 of the highest"),
    ],
)
def test_the_clock_of_a_peak(clock: float, throttle: str, facts: dict[str, float], told: str) -> None:
    device = {**DEVICE, "facts": facts}
    assert said(of_pi(clock_hz=clock, throttle=throttle), "fma", "power and clock", device).startswith(told)


def test_a_clock_below_the_runs_own_highest_fails_and_a_sustained_one_does_not() -> None:
    cold = of_pi(1.3 * PI, regime="burst", clock_hz=3e9)
    told = said([*cold, *of_pi(clock_hz=2.3e9)], "fma", "power and clock")
    assert told.startswith("fails: 2.30 GHz, 0.767 of the highest of this run")
    held = [*cold, *of_pi(clock_hz=2.3e9, regime="sustained")]
    assert word(checked(held, "fma", regime="sustained").checks["power and clock"]) == OK


def gpu(**facts: Any) -> dict[str, Any]:
    known = {"compute_capability": 90, "unit": "SM", "memory_bus_bits": 5120, "max_memory_clock_hz": 2.5e9}
    return {**DEVICE, "kind": "simulated", "facts": {**known, **facts}}


def test_more_than_the_units_can_do_fails() -> None:
    """fp64 of capability 9.0: 128 FLOP a clock and SM, 256e9 of two at 1 GHz."""
    for rate, answer in ((256e9, OK), (270e9, FAILS)):
        told = said(of_pi(rate, clock_hz=1e9, seconds=25e-3), "fma", "power and clock", gpu())
        assert word(told) == answer, told
    assert "1.05 of what its units can do at the clock held" in told


def test_a_lowered_memory_clock_fails() -> None:
    for clock, answer in ((2.5e9, OK), (1.25e9, FAILS)):
        slow = of_beta(clock_hz=1e9, facts={"memory_clock_hz": clock})
        told = said(slow, "read", "power and clock", gpu())
        assert word(told) == answer, told
    assert told == "fails: the memory clock is 1.25 GHz, its highest is 2.50 GHz"


def test_power_is_told() -> None:
    assert said(of_pi(power_w=250.0), "fma", "power and clock") == "ok: 250 W"


def test_arrays_that_fit_the_cache_fail() -> None:
    small = replace(READ, sizes={"bytes": 20 * MIB})
    assert said(of_beta(where=small), "read", "array size") == (
        "fails: 1 x 20 MiB against 16 MiB of cache: 2 times each and 4 times together are needed"
    )
    two = replace(COPY, sizes={"bytes": 32 * MIB})
    assert word(said(of_beta(where=two), "copy", "array size")) == OK
    bare = {**DEVICE, "caches": ()}
    assert word(said(of_beta(), "read", "array size", bare)) == UNTESTED


def test_arrays_as_fast_as_the_last_cache_fail() -> None:
    l3 = replace(L2, level="L3", sizes={"bytes": 4 * MIB, "plateau": 1})
    resident = [*of_beta(90e9), *rounds(l3, 85e9)]
    assert said(resident, "read", "array size").endswith("but as fast as L3 with 85.0 GB/s")
    assert word(said([*of_beta(), *rounds(l3, 85e9)], "read", "array size")) == OK


def walked(rates: Mapping[int, float]) -> list[Sample]:
    """Sets of so many MiB of both threads together, read at byte/s."""
    where = {mib: replace(L2, level="DRAM", sizes={"bytes": mib * MIB // 2}) for mib in rates}
    return [sample for mib, rate in rates.items() for sample in rounds(where[mib], rate)]


def test_arrays_in_a_larger_cache_than_the_system_reports_fail() -> None:
    """A virtual machine is told of 16 MiB, its host has 100: the arrays are read partly from those."""
    hidden = walked({24: 60e9, 32: 58e9, 48: 57e9, 64: 55e9, 96: 50e9, 128: 22e9})
    assert said([*of_beta(), *hidden], "read", "array size") == (
        "fails: 1 x 128 MiB against 16 MiB of cache, but sets up to 96 MiB are read over 1.25 times as fast: "
        "a larger cache than the system reports holds part of them"
    )
    assert word(said([*of_beta(), *of_beta(where=COPY), *hidden], "copy", "array size")) == FAILS
    large = of_beta(where=replace(READ, sizes={"bytes": 512 * MIB}))
    assert word(said([*large, *hidden], "read", "array size")) == OK, "four times what is held"


@pytest.mark.parametrize(
    "rates",
    [
        {24: 30e9, 32: 21e9, 48: 20e9, 64: 20e9, 128: 19e9},  # the edge of the cache that is reported
        {32: 24e9, 48: 24e9, 64: 24e9, 96: 24e9, 128: 24e9},  # another loop, a fifth faster
        {32: 20e9, 48: 20e9, 64: 50e9, 96: 50e9, 128: 50e9},  # two good moments and more, behind DRAM
        {32: 50e9, 48: 50e9, 64: 20e9, 96: 20e9},  # two are no row
    ],
)
def test_sets_behind_the_cache_that_are_no_faster_do_not(rates: Mapping[int, float]) -> None:
    assert word(said([*of_beta(), *walked(rates)], "read", "array size")) == OK


@pytest.mark.parametrize(("size", "answer"), [(300 << 10, OK), (900 << 10, FAILS), (40 << 10, FAILS)])
def test_a_working_set_must_lie_in_its_level_alone(size: int, answer: str) -> None:
    where = replace(L2, sizes={"bytes": size, "plateau": 1})
    told = said(rounds(where, 150e9), "cache-read", "array size")
    assert word(told) == answer, told


@pytest.mark.parametrize(
    ("source", "seconds", "answer"),
    [("native", 1e-3, OK), ("native", 1e-4, FAILS), ("host", 6e-4, FAILS), ("event", 15e-3, FAILS)],
)
def test_short_repetitions_fail(source: str, seconds: float, answer: str) -> None:
    told = said(of_pi(seconds=seconds, clock_source=source), "fma", "window")
    assert word(told) == answer, told


def test_a_coarse_clock_fails() -> None:
    """Milliseconds, in repetitions of 15 to 17 of them."""
    times = (0.015, 0.016, 0.015, 0.016, 0.016, 0.017, 0.016, 0.015)
    coarse = [replace(s, repetitions=Repetitions(seconds=times)) for s in of_pi()]
    assert said(coarse, "fma", "window").endswith("which moves in steps of 1.00 ms")
    fine = [
        replace(s, repetitions=Repetitions(seconds=tuple(t + 1e-6 * i for i, t in enumerate(times))))
        for s in of_pi()
    ]
    assert word(said(fine, "fma", "window")) == OK


def test_launches_that_waited_for_the_host_fail() -> None:
    late = of_pi(seconds=25e-3, clock_source="event", facts={"host_bound": True})
    assert said(late, "fma", "window").endswith("the host was too slow to queue 5 of 5 samples")


# verified, rounds, repetitions


def test_a_result_that_differed_fails_and_old_samples_do_not_say() -> None:
    wrong = replace(of_pi()[0], status="failed", reason="it differs", facts={"verified": False}, round=6)
    assert said([*of_pi(), wrong], "fma", "verified") == (
        "fails: its result differed from the reference in round 6"
    )
    elsewhere = replace(wrong, point=replace(PEAK, variant="8 chains"))
    assert word(said([*of_pi(), elsewhere], "fma", "verified")) == OK
    assert word(said([replace(s, facts={}) for s in of_pi()], "fma", "verified")) == UNTESTED


def test_a_last_round_that_the_others_do_not_predict_fails() -> None:
    told = said(of_pi(wobble=(*WOBBLE, 0.8)), "fma", "round agrees")
    assert told.startswith("fails: the last round lies 20 % below the mean of 5 earlier ones, which predict")
    assert word(said(of_pi(wobble=(*WOBBLE, 0.985)), "fma", "round agrees")) == OK, "within the cap"
    wide = (1.0, 1.2, 0.85, 1.1, 0.9, 0.8)
    assert word(said(of_pi(wobble=wide), "fma", "round agrees")) == OK, "as far apart as the others"
    assert said(of_pi(wobble=WOBBLE[:3]), "fma", "round agrees") == "not tested: 3 rounds, 4 are needed"


def test_too_few_clean_repetitions_fail() -> None:
    busy = Repetitions(seconds=(2e-3,) * 8, cpu_share=(1.0,) * 4 + (0.5,) * 4)
    assert said([replace(s, repetitions=busy) for s in of_pi()], "fma", "repetitions") == (
        "fails: too few were clean in 5 of 5 rounds, so all were used"
    )
