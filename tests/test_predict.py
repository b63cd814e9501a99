"""Predictions: parameters found again, times inside their intervals, and every refusal in words."""

from __future__ import annotations

import dataclasses
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench import store
from bench.backends import open_backend
from bench.errors import FileError
from bench.planning import sizes
from bench.prediction import answer, products, whose, works
from bench.prediction.estimate import log_width, spread
from bench.prediction.nominal import nominal
from bench.prediction.works import Load
from bench.profile import roofline
from bench.profile.records import Curve, CurvePoint, Interval, Placement, Precision, Profile
from bench.report import prediction as printed
from bench.workloads.zoo import ZOO
from tests.perf import unseen
from tests.predicted import standard_run
from tests.synthetic import synthetic_profile

FP64, LIBRARY = Precision.of("fp64"), Precision.of("fp64", "library")


# the simulated device, whose truth is known


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standard_run(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def profile(measured: Path) -> Profile:
    return store.read_profile(measured)


@cache
def simulated() -> Any:
    """The simulated device itself."""
    return open_backend("sim:small-cpu")


def truth(point: Any) -> float:
    """Seconds of one unit of a point on the simulated device without any noise."""
    from bench.backends.simulation import cost

    backend = simulated()
    found = cost.cost(backend.truth, point)
    memory = sum(seconds for _, seconds in found.memory)
    return float(backend.truth.t0 + roofline.seconds(found.compute, memory, 1, 1, backend.truth.p))


def test_the_standard_run_measures_oblong_products(profile: Profile) -> None:
    oblong = [c for c in profile.curves if (c.kind, c.mode) == ("gemm", "oblong")]
    assert {c.precision.inputs for c in oblong} == {"fp64", "fp32"}
    assert all(set(products.shapes_of(c)) == set(sizes.RAGGED) for c in oblong)
    flops = [p.flops for p in oblong[0].points]
    assert all(
        f % (2 * m * n * k) == 0 for f, (m, n, k) in zip(flops, products.shapes_of(oblong[0]), strict=True)
    )


@pytest.mark.parametrize("name", ["fp64", "fp32"])
def test_unseen_products_of_a_simulated_device(profile: Profile, name: str) -> None:
    order = random.Random(3)
    shapes = [unseen.shape(unseen.KINDS[i % 3], order) for i in range(60)]
    found = answer.gemm(profile, shapes, name, answer.threads_of(profile, None))
    hits, errors = 0, []
    for prediction, (m, n, k) in zip(found, shapes, strict=True):
        jobs = unseen.products(2, random.Random(1), prediction.threads, ())
        point = jobs[name == "fp32"].point
        real = truth(dataclasses.replace(point, variant="square", sizes={"m": m, "n": n, "k": k}))
        low, high = prediction.seconds.low, prediction.seconds.high
        assert low is not None and high is not None
        hits += low <= real <= high
        errors.append(abs(prediction.seconds.value / real - 1))
    assert hits >= 0.9 * len(shapes)
    assert sorted(errors)[len(errors) // 2] < 0.15


@pytest.mark.parametrize(
    ("flops", "moved", "fraction"), [(1e12, 2e9, 1.0), (1e9, 4e9, 1.0), (2e10, 4e9, 0.5), (0.0, 1e9, 0.75)]
)
def test_any_work_on_a_simulated_device(
    profile: Profile, flops: float, moved: float, fraction: float
) -> None:
    backend = simulated()
    threads = answer.threads_of(profile, None)
    found = answer.plain(profile, answer.Amounts(flops, moved, fraction), "fp64", threads, "")
    beta = backend.truth.beta_of_mixture(fraction, threads)
    compute, memory = flops / backend.truth.pi_at("fp64", threads), moved / beta
    real = backend.truth.t0 + roofline.seconds(compute, memory, 1, 1, backend.truth.p)
    assert found.seconds.low is not None and found.seconds.high is not None
    assert found.seconds.low <= real <= found.seconds.high
    assert found.seconds.value == pytest.approx(real, rel=0.1)
    assert found.binds == ("compute" if compute > memory else "memory")


# the chosen form


def test_the_chosen_form_predicts() -> None:
    """p = 6 in the synthetic sweep: at the ridge the time is 2^(1/6) of the corner, T0 2 us more."""
    profile = synthetic_profile()
    amounts = answer.Amounts(90e9, 20e9)
    found = answer.plain(profile, amounts, "fp64", 2, "DRAM")
    assert found.seconds.value == pytest.approx(2e-6 + 2 ** (1 / 6))
    assert found.binds == "cannot tell", "at the ridge"
    bare = dataclasses.replace(profile, curves=())
    hard = answer.plain(bare, amounts, "fp64", 2, "DRAM")
    assert (hard.seconds.value, hard.seconds.high) == (1.0, pytest.approx(2.0))
    assert any("overlap is not known" in note for note in hard.notes)


def test_a_form_keeps_its_shape_between_another_pi_and_beta() -> None:
    fit = next(f for f in synthetic_profile().curves[0].fits if f.chosen)
    capped = dataclasses.replace(
        fit, form="power-capped", p=None, pi_c=2 * fit.pi.value, beta_c=3 * fit.beta.value
    )
    for form in (fit, capped):
        moved = roofline.rescaled(form, 10 * form.pi.value, 5 * form.beta.value)
        before, after = (roofline.fitted_rate(f.ridge.value, f) / f.pi.value for f in (form, moved))
        assert after == pytest.approx(before)


# levels and workloads


def with_caches(**changes: Any) -> Profile:
    profile = synthetic_profile()
    caches = [
        {"level": "L1", "bytes": 48 << 10, "sharers": 1, "instances": 2},
        {"level": "L2", "bytes": 2 << 20, "sharers": 1, "instances": 2},
        {"level": "L3", "bytes": 32 << 20, "sharers": 2, "instances": 1},
    ]
    facts = {**profile.facts, "device": {**profile.facts["device"], "kind": "cpu", "caches": caches}}
    return dataclasses.replace(profile, facts=facts, **changes)


def test_the_level_follows_from_the_footprint() -> None:
    profile = with_caches()
    sizes = {64 << 10: "L1", 1 << 20: "L2", 10 << 20: "L3", 100 << 20: "DRAM"}
    assert {size: works.level_of(profile, size, 2) for size in sizes} == sizes
    assert works.level_of(profile, 96 << 10, 1) == "L2", "one thread has one L1"


def test_near_a_capacity_the_measured_sweep_decides() -> None:
    profile = with_caches()
    slow = []
    for curve in profile.curves:
        points = curve.points
        if curve.kind == "cache":  # 16 MiB a thread at half the rate of L3
            half = Interval(55e9)
            points = tuple(dataclasses.replace(p, estimate=half) if p.x == 1 << 24 else p for p in points)
        slow.append(dataclasses.replace(curve, points=points))
    profile = dataclasses.replace(profile, curves=tuple(slow))
    assert works.share_of_plateau(profile, "L3", 32 << 20, 2) == pytest.approx(0.5)
    assert works.share_of_plateau(profile, "L3", 8 << 20, 2) == pytest.approx(1.0)
    assert works.share_of_plateau(profile, "DRAM", 200 << 20, 2) == pytest.approx(1.0)


def placement(name: str, level: str, seconds: float, sizes: dict[str, int]) -> Placement:
    known = ZOO[name]
    work = known.work(sizes)
    around = Interval(seconds, seconds / 1.02, seconds * 1.02)
    unit = Interval(1.0)
    return Placement(
        name,
        Precision.of(known.precision),
        level,
        2,
        "code",
        work.flops,
        work.reads["DRAM"],
        work.writes["DRAM"],
        around,
        unit,
        unit,
        unit,
        "FLOP/s",
        "memory",
        0.0,
        seconds,
    )


def softmax(profile: Profile, rows: int) -> Any:
    return answer.zoo(profile, "softmax", [f"{rows}x1024"], 2, "")[0]


def test_a_workload_carries_its_own_rate_and_its_own_kappa() -> None:
    """softmax at 10 GFLOP/s in L2; from DRAM half as fast as its roof with that rate."""
    small, large = {"rows": 64, "columns": 1024}, {"rows": 32768, "columns": 1024}
    in_l2 = 5 * 64 * 1024 / 10e9
    bare = with_caches(placements=(placement("softmax", "L2", in_l2, small),))
    core = softmax(bare, 128)
    assert core.seconds.value == pytest.approx(2 * in_l2, rel=0.05) and core.binds == "compute"
    there = 2 * softmax(bare, 32768).seconds.value
    both = with_caches(
        placements=(placement("softmax", "L2", in_l2, small), placement("softmax", "DRAM", there, large))
    )
    assert softmax(both, 32768).seconds.value == pytest.approx(there, rel=1e-6)
    assert softmax(both, 65536).seconds.value == pytest.approx(2 * there, rel=0.01)
    assert softmax(both, 64).seconds.value == pytest.approx(in_l2, rel=1e-6)
    ratio = softmax(both, 1024).seconds.value / softmax(bare, 1024).seconds.value
    assert 1.2 < ratio < 1.8, "between the two kappas"
    assert "placed at 2 sizes" in softmax(both, 1024).basis
    assert any("extrapolated" in note for note in softmax(both, 10**6).notes)


def placed_in(level: str, seconds: float, name: str = "softmax") -> Placement:
    sizes = {
        "stencil 7-point": {"n": 32 if level == "L2" else 203},
        "softmax": {"rows": 64 if level == "L2" else 16384, "columns": 1024},
    }
    return placement(name, level, seconds, sizes.get(name, sizes["softmax"]))


def log_width_of(profile: Profile, rows: int) -> float:
    """Half-width (log) of a softmax."""
    return log_width(softmax(profile, rows).seconds)


def test_how_kappa_wanders_over_sizes_widens_every_workload() -> None:
    """Three workloads in L2 and from DRAM; what the other two do from DRAM says how sure a third is."""
    names = ("softmax", "layernorm", "stencil 7-point")
    near = [placed_in("L2", 3e-5, name) for name in names]

    def at(others: float) -> Profile:
        far = [placed_in("DRAM", 0.02 * (1 if name == "softmax" else others), name) for name in names]
        return with_caches(placements=(*near, *far))

    there, four, sixteen = (log_width_of(at(1.0), 16384 * f) for f in (1, 4, 16))
    assert 0 < there < four < sixteen
    grown = (sixteen**2 - there**2) / (four**2 - there**2)
    assert grown == pytest.approx((4**2 - 1) / (2**2 - 1), rel=1e-6), "by the octave, one at least"
    assert log_width_of(at(4.0), 16384) > 1.2 * there
    assert softmax(at(4.0), 16384).seconds.value == softmax(at(1.0), 16384).seconds.value


def test_without_a_second_placement_other_workloads_say_how_far_kappa_may_lie() -> None:
    one = placed_in("DRAM", 0.02)
    others = (placed_in("DRAM", 0.02, "layernorm"), placed_in("DRAM", 0.05, "stencil 7-point"))
    alone, beside = with_caches(placements=(one,)), with_caches(placements=(one, *others))
    there, far = softmax(alone, 16384), softmax(alone, 16384 * 16)
    assert there.seconds.high is not None and far.seconds.low is not None and far.seconds.high is None
    assert any("how it changes with its size was not measured" in note for note in far.notes)
    assert softmax(beside, 16384 * 16).seconds.high is not None
    assert log_width_of(beside, 16384 * 16) > log_width_of(beside, 16384) > log_width_of(alone, 16384)


def with_start(profile: Profile, seconds: float) -> Profile:
    """The profile with T0 of a team of two."""
    like = next(c for c in profile.ceilings if c.threads == 2)
    empty = dataclasses.replace(
        like, quantity="t0", kernel="empty", variant="team", estimate=Interval(seconds), unit="s"
    )
    return dataclasses.replace(profile, ceilings=(*profile.ceilings, empty))


def test_a_workload_that_was_placed_in_dram_only_has_a_bound_in_a_cache() -> None:
    large = {"rows": 32768, "columns": 1024}
    profile = with_caches(placements=(placement("softmax", "DRAM", 0.05, large),))
    near, far = softmax(profile, 128), softmax(profile, 32768)
    assert near.level == "L2" and near.seconds.high is None
    assert near.seconds.low is not None and near.seconds.low <= near.roof_seconds
    assert far.seconds.high is not None


def test_what_is_shorter_than_its_start_is_bound_by_it() -> None:
    profile = with_start(with_caches(), 5e-6)
    amounts = answer.Amounts(flops=1e3, moved=0.0)
    short = answer.plain(profile, amounts, "fp64", 2, "")
    assert (short.binds, short.seconds.high) == ("launch", None)
    assert any("shorter than starting it (5.00 µs)" in note for note in short.notes)
    long = answer.plain(profile, answer.Amounts(1e9, 0.0), "fp64", 2, "")
    assert (long.binds, long.notes) == ("compute", ()) and long.seconds.high is not None
    assert answer.plain(with_caches(), amounts, "fp64", 2, "").seconds.high is not None, "no T0 measured"


def test_operands_larger_than_the_memory_are_named() -> None:
    bare = with_caches()
    device = {**bare.facts["device"], "memory_bytes": 8 << 30}
    profile = dataclasses.replace(bare, facts={**bare.facts, "device": device})
    for rows, told in ((32768, False), (10**7, True)):
        assert any("more than the device's 8 GiB" in n for n in softmax(profile, rows).notes) == told
    (large,) = answer.gemm(profile, [(10**5, 10**5, 10**5)], "fp64", 2)
    assert any("its operands have 224 GiB" in note for note in large.notes)


def test_a_workload_that_was_not_placed_has_a_least_time() -> None:
    found = softmax(with_caches(placements=()), 32768)
    assert found.seconds.high is None and found.seconds.low is not None
    assert found.seconds.value == found.roof_seconds
    assert any("did not place it" in note for note in found.notes)


def test_without_arithmetic_the_rate_is_in_bytes() -> None:
    (found,) = answer.zoo(with_caches(placements=()), "transpose", ["4096"], 2, "")
    assert (found.unit, found.flops, found.binds) == ("byte/s", 0.0, "memory")
    assert found.rate == pytest.approx(2 * 8 * 4096**2 / found.seconds.value)


def test_bytes_bound_a_thin_product() -> None:
    """Squares alone promise 86 GFLOP/s: k = 2 would need 690 GB/s."""
    (found,) = answer.gemm(synthetic_profile(), [(20000, 20000, 2)], "fp64", 2)
    assert found.binds == "memory"
    assert found.seconds.value >= found.bytes / 30e9
    assert any("the measured bandwidth decides" in note for note in found.notes)


# nominal roof and whose profile


def test_nominal_roof_of_a_cpu_and_a_gpu() -> None:
    profile = with_caches()
    assert nominal(profile, FP64, 2).seconds(1e9, 1e9) is None
    facts = {"nominal_clock_hz": 2.5e9, "vector": "AVX2 + FMA"}
    device = {**profile.facts["device"], "facts": facts}
    identity = {"vendor": "AuthenticAMD", "family": "25", "model": "1"}
    known = dataclasses.replace(profile, facts={"device": device}, identity=identity)
    roof = nominal(known, FP64, 2)
    assert (roof.pi, roof.beta) == (2.5e9 * 16 * 2, 204.8e9)
    assert nominal(known, Precision.of("fp32", "library"), 2).pi == 2.5e9 * 32 * 2
    assert roof.seconds(80e9, 0.0) == pytest.approx(1.0)
    gpu = {"kind": "cuda", "name": "NVIDIA H200", "facts": {}}
    board = nominal(dataclasses.replace(profile, facts={"device": gpu}), FP64, 132)
    assert (board.pi, board.beta, board.source) == (33.5e12, 4.8e12, "datasheet of H200 SXM")
    held = dataclasses.replace(profile, facts={"device": gpu})
    product = nominal(held, Precision.of("fp64", "library"), 132)
    assert product.pi == 67e12, "cuBLAS multiplies fp64 on the matrix units"
    assert nominal(synthetic_profile(simulated=True), FP64, 2).pi is None


def test_a_profile_of_another_machine_is_said_to_be_one() -> None:
    profile = with_caches(identity={"device": "Other CPU", "kind": "cpu", "threads": 4096})
    assert "this is another machine (device Other CPU there" in whose.elsewhere(profile)
    assert whose.elsewhere(synthetic_profile(simulated=True)) == ""


def test_a_curve_that_names_other_shapes_is_refused() -> None:
    point = CurvePoint(10.0, Interval(1e9), 2e3, 1e3, 2e-6)
    curve = Curve("gemm", "oblong", LIBRARY, "all", 2, "FLOP/s", (point,), (), {"shapes": []})
    with pytest.raises(FileError, match="names other shapes than it holds"):
        products.shapes_of(curve)


def test_the_table_says_what_has_no_interval() -> None:
    load = Load(FP64, 2, 1e9, 1e9, 0.0, 1e9)
    profile = with_caches()
    found, level = works.roof_of(profile, load)
    shown = [
        works.prediction(profile, load, level, "x", seconds, found, 1.0, "b", ["n"])
        for seconds in (Interval(1.0), Interval(1.0, 0.9), Interval(1.0, 0.9, 1.5), spread(1.0, 0.1))
    ]
    text = printed.render(shown, profile, "elsewhere")
    rows = [line for line in text.splitlines() if line.startswith("x ")]
    told = ("no interval", "at least 900 ms", "900 ms to 1.5 s", "900 ms to 1.1 s")
    assert (
        "\nelsewhere\n" in text
        and [words in line for words, line in zip(told, rows, strict=True)] == [True] * 4
    )


def test_a_product_is_held_to_what_starting_it_costs(profile: Profile) -> None:
    threads = 2
    empty = with_start(profile, 1.0)
    (tiny,) = answer.gemm(empty, [(64, 64, 64)], "fp64", threads)
    assert tiny.binds == "launch" and tiny.seconds.high is None
    assert any(note.startswith("shorter than starting it (1.00 s)") for note in tiny.notes)
