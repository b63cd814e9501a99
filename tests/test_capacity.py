"""Usable memory as a ceiling: what was free or could be taken, never more than we may use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.fitting import capacity
from bench.profile.records import Point, Precision, Sample

HOST = {"kind": "cpu", "threads": 4, "memory_bytes": 8e9}
COPY = Point("link", "copy-device", "", Precision.of("fp32"), "device", "copy")


def rounds(*free: float) -> list[dict[str, object]]:
    return [{"round": n, "values": {"memory_available_bytes": f}} for n, f in enumerate(free, 1)]


def test_free_bytes_have_the_spread_of_the_rounds() -> None:
    (held,) = capacity.memory(HOST, rounds(5e9, 5.1e9, 4.9e9, 5e9, 5e9), [])
    assert (held.quantity, held.level, held.unit, held.threads) == ("capacity", "DRAM", "byte", 4)
    assert held.estimate.value == 5e9 and held.estimate.low is not None and held.estimate.low < 5e9
    assert held.converged is True and held.variant == capacity.FREE


def test_a_limit_is_never_exceeded_and_five_rounds_are_needed_for_a_verdict() -> None:
    (held,) = capacity.memory(HOST, rounds(30e9, 30e9), [])
    assert held.estimate.value == 8e9 and held.converged is None
    (wide,) = capacity.memory(HOST, rounds(1e9, 2e9, 4e9, 1e9, 4e9), [])
    assert wide.converged is False


def test_what_could_be_taken_counts_before_what_is_said_to_be_free() -> None:
    sample = Sample(COPY, 1, 1, 0, facts={"memory_usable_bytes": 6e9})
    (held,) = capacity.memory(HOST, rounds(7e9), [sample])
    assert (held.estimate.value, held.variant) == (6e9, capacity.TAKEN)
    refused = replace(sample, facts={"memory_usable_bytes": 0})
    (held,) = capacity.memory(HOST, rounds(7e9), [refused])
    assert (held.estimate.value, held.variant) == (7e9, capacity.FREE)


@pytest.mark.parametrize("values", [{}, {"memory_available_bytes": None}])
def test_nothing_told_is_nothing_said(values: dict[str, object]) -> None:
    assert capacity.memory(HOST, [{"round": 1, "values": values}], []) == []
