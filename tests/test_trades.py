"""Parallel modes and trades against hand-worked times, bytes and turning points."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest

from bench import store
from bench.errors import UsageError
from bench.profile.records import Curve, Interval, Precision
from bench.report import trades as words
from bench.trades import machine, rounding, rows, step
from bench.trades.cost import Cost, Rates, crossing
from bench.trades.rows import Question
from bench.trades.step import Split, Step
from tests.synthetic import ceiling, synthetic_profile

STEP = Step(
    flops=720e9, moved=80e9, parameters=1e6, item=4.0, state=16.0, activations=8e9, boundary=1e8, layers=10
)
"""On π 90 GFLOP/s and β 20 GB/s 8 s of compute and 4 s of memory."""

RATES = Rates(pi=90e9, beta=20e9, network=2e9, alpha=1e-3, read=4e9, write=2e9)


def link(level: str, access: str, value: float, kernel: str = "copy") -> Any:
    return ceiling("beta", value, level=level, access=access, kernel=kernel, variant="", precision="int8")


def linked() -> Any:
    """A profile with a network of 2 GB/s and 1 ms and storage of 4 and 2 GB/s."""
    profile = synthetic_profile()
    others = [c for c in profile.ceilings if c.level in ("", "L1", "L2", "L3", "DRAM")]
    start = link("network", "exchange", 1e-3)
    return dataclasses.replace(
        profile,
        ceilings=(
            *others,
            link("network", "send", 3e9),
            link("network", "exchange", 4e9),
            dataclasses.replace(start, quantity="t0", unit="s"),
            link("storage", "read", 4e9),
            link("storage", "write", 2e9),
            link("page cache", "read", 8e9),
        ),
        curves=tuple(c for c in profile.curves if c.kind == "mix"),
    )


def question(mode: str = "data", devices: int = 4, precision: str = "fp64", **changes: Any) -> Question:
    given = machine.measured(linked(), "read-only", "", "", "")
    item = 8.0 if precision == "fp64" else 4.0
    asked = dataclasses.replace(STEP, item=item, **changes)
    return Question(asked, given, precision, mode, Split(devices, 8), 10e9)


def test_two_laws_over_four_resources() -> None:
    cost = Cost(90e9, 40e9, sent=4e9, messages=500, kept=4e9, stretch=1.5)
    assert cost.seconds(RATES) == pytest.approx({"compute": 1.5, "memory": 3, "network": 3.75, "beyond": 4.5})
    assert cost.overlapped(RATES) == pytest.approx(4.5)
    assert cost.serial(RATES) == pytest.approx(12.75)
    assert cost.binds(RATES) == "beyond"


def test_one_device_sends_nothing() -> None:
    cost = step.alone(STEP)
    assert (cost.sent, cost.messages, cost.kept, cost.stretch) == (0, 0, 0, 1)
    assert cost.serial(RATES) == pytest.approx(12)
    assert cost.held == pytest.approx(16e6 + 8e9)


def test_data_parallel_sums_gradients_by_a_ring() -> None:
    cost = step.data(STEP, Split(4, 8))
    assert (cost.flops, cost.moved) == (180e9, 20e9)
    assert cost.sent == pytest.approx(2 * 3 / 4 * 4e6), "1e6 gradients of 4 byte"
    assert cost.messages == 6
    assert cost.held == pytest.approx(16e6 + 2e9), "all weights, a share of the batch"


def test_tensor_parallel_sums_boundaries_four_times_a_layer() -> None:
    cost = step.tensor(STEP, Split(4, 8))
    assert cost.sent == pytest.approx(4 * 10 * 1.5 * 1e8)
    assert cost.messages == 4 * 10 * 6
    assert cost.held == pytest.approx((16e6 + 8e9) / 4)
    again = step.tensor(STEP.recomputed(), Split(4, 8))
    assert again.sent == pytest.approx(1.5 * cost.sent), "the forward half of the sums comes twice"


def test_a_pipeline_waits_to_fill_and_drain() -> None:
    cost = step.pipeline(STEP, Split(4, 8))
    assert cost.stretch == pytest.approx(1 + 3 / 8)
    assert cost.sent == pytest.approx(2e8)
    assert cost.messages == 16
    assert step.pipeline(STEP, Split(4, 10**9)).stretch == pytest.approx(1)


def test_recomputing_costs_a_third_and_keeps_the_boundaries() -> None:
    again = STEP.recomputed()
    assert (again.flops, again.moved) == pytest.approx((960e9, 80e9 * 4 / 3))
    assert again.activations == pytest.approx(10 * 1e8 + 8e8), "boundaries, and one layer at a time"
    thin = dataclasses.replace(STEP, boundary=1e10).recomputed()
    assert thin.activations == STEP.activations, "never more than without"


def test_smaller_numbers_shrink_what_moves_and_leave_the_state() -> None:
    half = STEP.in_items_of(2.0)
    assert (half.moved, half.activations, half.boundary, half.gradients) == (40e9, 4e9, 5e7, 2e6)
    assert (half.flops, half.state) == (STEP.flops, STEP.state)


def test_crossing_is_where_both_take_as_long() -> None:
    base, packed = Cost(0, 0, sent=8e9, messages=2), Cost(0, 20e9, sent=2e9, messages=2)
    turn = crossing(base, packed, RATES)
    assert turn == pytest.approx(6e9), "6 GB less to send for 1 s more of memory"
    at = dataclasses.replace(RATES, network=turn)
    assert base.serial(at) == pytest.approx(packed.serial(at))
    assert crossing(base, Cost(0, 0, sent=2e9, messages=2), RATES) == math.inf
    assert crossing(packed, base, RATES) is None


@pytest.mark.parametrize(("bits", "expected"), [(24, 2**-24), (11, 2**-11), (8, 2**-8), (4, 2**-4)])
def test_rounding_to_a_significand_errs_by_less_than_its_unit(bits: int, expected: float) -> None:
    error = rounding.error(lambda values: rounding.rounded(values, bits))
    assert 0.3 * expected < error < 0.6 * expected, "uniform in the last place: 2^-bits / sqrt(3), by binade"


def test_rounding_is_that_of_the_type() -> None:
    import numpy as np

    values = np.random.default_rng(3).standard_normal(1000)
    assert np.array_equal(rounding.rounded(values, 24), values.astype(np.float32).astype(np.float64))
    assert np.array_equal(rounding.rounded(values, 53), values)
    assert rounding.type_error("int8") == 0.0


def test_what_packed_gradients_lose() -> None:
    half, byte, signs, top = (rounding.error(packing.repack) for packing in rounding.PACKINGS)
    assert half == pytest.approx(2**-8 / math.sqrt(3) * 0.7, rel=0.2)
    assert byte == pytest.approx(2.9 / 127 / math.sqrt(12), rel=0.1), "the largest of 256 lies at 2.9 sigma"
    assert 1.0 < signs < 1.4, "sqrt(largest E|x| - E x^2) of normal numbers"
    assert top == pytest.approx(math.sqrt(1 - 0.0845), rel=0.01), "the top hundredth holds 8 % of the energy"


def test_packed_signs_are_right_in_the_mean() -> None:
    import numpy as np

    block = np.tile(np.linspace(-1, 1, rounding.BLOCK), 4000)
    sent = rounding.PACKINGS[2].repack(block)
    assert set(np.unique(sent)) <= {-1.0, 0.0, 1.0}
    means = sent.reshape(-1, rounding.BLOCK).mean(axis=0)
    assert np.abs(means - block[: rounding.BLOCK]).max() < 0.04


def test_bytes_on_the_wire() -> None:
    volumes = [packing.volume(1e6, 4.0) for packing in rounding.PACKINGS]
    assert volumes == pytest.approx([2e6, 1e6, 0.25e6, 1e4 * 8])


def test_machine_of_a_profile() -> None:
    found = machine.measured(linked(), "read-only", "", "", "")
    assert found.network is not None
    assert (found.network.name, found.network.beta.value, found.network.alpha.value) == ("network", 2e9, 1e-3)
    assert found.network.source == "network copy exchange, each way", "a ring sends while it receives"
    assert found.read is not None
    assert found.write is not None
    assert (found.read.name, found.read.beta.value, found.write.beta.value) == ("storage", 4e9, 2e9)
    value, slow, fast = (found.rates("fp64", end) for end in ("value", "slow", "fast"))
    assert (value.pi, value.beta, value.network, value.read, value.write) == (90e9, 20e9, 2e9, 4e9, 2e9)
    assert slow.pi < value.pi < fast.pi
    assert slow.alpha > value.alpha > fast.alpha


def test_a_given_rate_stands_in_for_a_link() -> None:
    found = machine.measured(linked(), "in-place", "25 GB/s", "5 us", "12 GB/s")
    assert found.beta.value == 30e9
    assert found.network is not None
    assert (found.network.beta, found.network.alpha) == (Interval(25e9), Interval(pytest.approx(5e-6)))
    assert found.read is not None
    assert found.read.beta == Interval(12e9)


def test_a_measured_all_reduce_is_the_network() -> None:
    known = {
        **dict.fromkeys(("level", "kernel", "variant", "access"), ""),
        **{"kernel": "all-reduce", "devices": 4, "bus_factor": 1.5, "bus_beta": 60e9},
        **{"beta": 40e9, "beta_low": 38e9, "beta_high": 42e9},
        **{"alpha_s": 30e-6, "alpha_low": None, "alpha_high": 36e-6},
    }
    curve = Curve("collective", "", Precision.of("fp32"), "all", 4, "byte/s", (), (), known)
    profile = dataclasses.replace(linked(), curves=(curve,))
    found = machine.measured(profile, "read-only", "", "", "").network
    assert found is not None
    assert (found.name, found.beta) == ("devices", Interval(60e9, 57e9, 63e9))
    assert found.alpha == Interval(pytest.approx(5e-6), None, pytest.approx(6e-6)), "six messages in a row"
    asked = machine.measured(profile, "read-only", "network", "", "").network
    assert asked is not None
    assert asked.name == "network", "a link that is named comes first"


@pytest.mark.parametrize(
    ("network", "latency", "beyond", "sentence"),
    [
        ("mars", "", "", "--network 'mars' is no link of this profile; valid: network, storage, or a rate"),
        ("", "-1", "", "--latency must be zero or a positive number"),
        ("25 GFLOP/s", "", "", "--network takes byte/s"),
        ("0", "", "", "--network must be a positive number"),
        ("", "", "L2", "--beyond 'L2' is no link of this profile"),
    ],
)
def test_links_that_cannot_be(network: str, latency: str, beyond: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("(", r"\(")):
        machine.measured(linked(), "read-only", network, latency, beyond)


def test_latency_without_a_network_is_refused() -> None:
    profile = linked()
    near = tuple(c for c in profile.ceilings if c.level in ("", "DRAM"))
    bare = dataclasses.replace(profile, ceilings=near)
    assert machine.measured(bare, "read-only", "", "", "").network is None
    with pytest.raises(UsageError, match="--latency belongs to a network"):
        machine.measured(bare, "read-only", "", "1 ms", "")


def test_modes_against_one_device() -> None:
    one, data, tensor, pipe = rows.modes(question())
    assert one.overlapped.value == pytest.approx(8)
    assert one.serial.value == pytest.approx(12)
    assert data.alone["network"] == pytest.approx(6e-3 + 1.5 * 8e6 / 2e9)
    assert data.gain_overlapped == pytest.approx(4)
    assert data.gain_serial == pytest.approx(12 / (3 + 12e-3))
    assert tensor.binds == "network"
    assert pipe.overlapped.value == pytest.approx(2 * 11 / 8)
    assert (one.fits, data.held) == (True, pytest.approx(16e6 + 2e9))
    assert data.overlapped.low < data.overlapped.value < data.overlapped.high  # type: ignore[operator]
    assert [row.name for row in rows.modes(question(devices=1))] == ["one device"]
    many = [row.name for row in rows.modes(question(devices=11))]
    assert many == ["one device", "data-parallel", "tensor-parallel"], "10 layers are no pipeline of 11"


def test_trades_against_the_step_as_it_is() -> None:
    found = {row.name: row for row in rows.trades(question())}
    packed = [packing.name for packing in rounding.PACKINGS]
    assert list(found) == ["recompute layers", "offload to storage", "in fp32", *packed]
    assert found["recompute layers"].gain_overlapped == pytest.approx(0.75)
    beyond = found["offload to storage"]
    assert beyond.alone["beyond"] == pytest.approx(2e9 / 4e9 + 2e9 / 2e9)
    assert beyond.alone["memory"] == pytest.approx(1 + 4e9 / 20e9)
    assert beyond.held == pytest.approx(16e6), "only weights stay"
    assert found["in fp32"].gain_overlapped == pytest.approx(2), "twice π, half the bytes"
    assert found["in fp32"].error == pytest.approx(2**-24 / math.sqrt(3) * 0.7, rel=0.2)
    byte = found["gradients in 8 bit"]
    assert byte.alone["network"] == pytest.approx(6e-3 + 1.5 * 1e6 / 2e9)
    assert byte.alone["memory"] == pytest.approx(1 + (2 * 8e6 + 3.25 * 1e6) / 20e9)
    top = found["top 1 % of gradients"]
    assert top.alone["network"] == pytest.approx(3e-3 + 3 * 1e4 * 12 / 2e9)
    assert top.alone["memory"] == pytest.approx(1 + (4 * 8e6 + 5 * 1e4 * 12) / 20e9)


def test_gradients_travel_only_between_devices_with_all_weights() -> None:
    for asked in (question("tensor"), question("pipeline"), question(devices=1)):
        assert not any("gradients" in row.name for row in rows.trades(asked))


def test_turning_points() -> None:
    found = {turn.what: turn for turn in rows.thresholds(question(parameters=1e8))}
    devices = found["more devices, which the network still feeds"]
    assert devices.value is not None
    before, there = (8 / n - 2 * (n - 1) * (0.4 / n + 1e-3) for n in (devices.value - 1, devices.value))
    assert before > 0 >= there, "8 s of compute shared, against gradients of 800 MB"
    assert devices.pays
    bf16 = found["gradients in bf16"]
    extra = (2 * 8e8 + 3.25 * 2e8) / 20e9
    assert bf16.value == pytest.approx(1.5 * 6e8 / extra)
    assert bf16.pays
    again = found["recompute instead of moving activations"]
    assert again.value == pytest.approx(2 * 2e9 / (3 / 3 - 4e9 / 20e9)), "1 s against 4 GB of memory"
    assert again.measured == pytest.approx(2 / (1 / 4e9 + 1 / 2e9))
    assert again.pays
    assert not dataclasses.replace(again, measured=6e9).pays


def test_printed_in_a_hundred_columns() -> None:
    text = words.render(question(), simulated=True)
    assert max(map(len, text.splitlines())) <= 100
    assert "SIMULATED" in text.splitlines()[0]
    assert "gradients in 8 bit" in text
    assert "!" not in text.replace("with !", "")
    narrow = dataclasses.replace(question(), memory=1e9)
    assert "1.88 GiB !" in words.render(narrow, simulated=False)
    unlinked = dataclasses.replace(narrow.machine, network=None, read=None, write=None)
    alone = dataclasses.replace(question(devices=1), machine=unlinked)
    assert "From where" not in words.render(alone, simulated=False)


GIVEN = shlex.split("--flops '720 GFLOP' --bytes 80GB --parameters 1e6 --activations 8GB --layers 10")


def test_the_verb(call: Any, tmp_path: Path) -> None:
    store.write_profile(tmp_path, linked())
    code, out, _ = call("trades", tmp_path, *GIVEN, "--devices", "4", "--precision", "fp64", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["modes"][1]["overlapped"]["value"] == pytest.approx(2)
    assert found["machine"]["network"]["name"] == "network"
    assert {turn["what"] for turn in found["thresholds"]} >= {"gradients in bf16"}
    assert found["step"]["boundary"] == pytest.approx(8e8)
    assert found["micro_batches"] == 16
    for words_given, sentence in (
        (("--parallel", "sideways"), "unknown --parallel 'sideways'; valid: data, tensor, pipeline"),
        (("--parallel", "pipeline", "--devices", "11"), "11 devices cannot share 10 layers as a pipeline"),
        (("--precision", "fp8"), "no pi of precision 'fp8' in this profile; valid: fp64, fp32"),
        (("--bytes", "-3 GB"), "--bytes must be a positive number"),
        (("--state", "inf"), "--state must be zero or a positive number below 1e+40, got inf"),
    ):
        code, out, said = call("trades", tmp_path, *GIVEN, *words_given)
        assert (code, out) == (2, "")
        assert sentence in said
