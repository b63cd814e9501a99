"""The measured all-reduce of `tests.perf.reduction`: two devices over a socket pair sum what they should."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from bench.trades import rounding
from tests.perf import reduction
from tests.test_trades import linked


@pytest.mark.parametrize(("form", "most"), [("plain", 1e-6), ("bf16", 3e-3), ("8 bit", 1e-2)])
def test_two_devices_sum_their_gradients(form: str, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "COUNT", 8 * reduction.BLOCK)
    ends = socket.socketpair()
    first, second = (reduction.Device(link, rank) for rank, link in enumerate(ends))
    for device in (first, second):
        device.sums[:] = device.gradients
    other = threading.Thread(target=second.reduce, args=(form,))
    other.start()
    first.reduce(form)
    other.join()
    truth = first.gradients + second.gradients
    for device in (first, second):
        lost = np.sqrt(np.mean((device.sums - truth) ** 2) / np.mean(truth**2))
        assert lost < most
    assert form == "plain" or lost > most / 100, "packed numbers lose something"
    for link in ends:
        link.close()


def test_packing_is_what_the_model_says_it_is() -> None:
    values = np.random.default_rng(5).standard_normal(4 * reduction.BLOCK).astype(np.float32)
    packed, steps = np.empty(values.size, np.int8), np.empty(values.size // reduction.BLOCK, np.float32)
    reduction.pack_bytes(values, packed, steps)
    back = np.empty_like(values)
    reduction.unpack_bytes(packed, steps, back, 0.0)
    assert np.allclose(back, rounding.PACKINGS[1].repack(values.astype(float)), atol=1.01 * steps.max())
    assert np.abs(back - values).max() <= 0.51 * steps.max()
    halves = np.empty(values.size, np.uint16)
    reduction.pack_halves(values.view(np.uint32), halves)
    reduction.unpack_halves(halves, back.view(np.uint32))
    assert np.array_equal(back, rounding.PACKINGS[0].repack(values.astype(float)).astype(np.float32))


def test_predictions_of_a_profile() -> None:
    told = reduction.predicted(linked())
    volume = 4.0 * reduction.COUNT
    assert told["plain"] == pytest.approx(volume / 2e9 + 2e-3)
    handled = (2 + 3.5 / 2) * volume / 10e9
    assert told["bf16"] == pytest.approx(volume / 2 / 2e9 + 2e-3 + handled)
