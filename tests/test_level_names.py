"""The name of a plateau behind which the rate falls on: what alone lies there, or none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bench.fitting import level_names, levels
from bench.profile.records import Interval

KIB, MIB = 1 << 10, 1 << 20
ZEN = {"L1": 48.0 * KIB, "L2": 1.0 * MIB, "L3": 16.0 * MIB}
COARSE = [4.0 * KIB * 4**k for k in range(8)]


def coarse(rates: Sequence[float]) -> list[level_names.Level]:
    """Named levels of a sweep with a working set every second octave, 4 KiB to 64 MiB, in three rounds."""
    return level_names.named(levels.detect(COARSE, [[v] * 3 for v in rates]), ZEN, end=COARSE[-1])


def test_the_last_plateau_of_a_coarse_sweep_is_what_alone_lies_there() -> None:
    first, second = coarse([1145e9, 1145e9, 440e9, 440e9, 300e9, 150e9, 60e9, 20e9])
    assert (first.name, second.name) == ("L1", "L2")
    assert first.why == f"{level_names.AS_FAR}: nothing lies between 16 KiB and 64 KiB"
    assert second.why.startswith("behind L1 inside L2; the rate falls behind 256 KiB")
    assert second.why.endswith(level_names.NO_END) and second.record["capacity_bytes"] is None


def flat_to(low: float, high: float) -> levels.Plateau:
    return levels.Plateau(9, 12, low, high, Interval(2.4e11), None, 3, 3)


def before_it(name: str = "L2", held: float = 929e3) -> list[levels.Plateau]:
    """The plateau of a level that holds what is reported of it, after an L1 where it is none itself."""
    first = levels.Plateau(0, 2, 4096.0, 46080.0, Interval(1.1e12), Interval(51e3), 3, 3)
    own = levels.Plateau(4, 7, 59392.0, 311296.0, Interval(4.2e11), Interval(held), 3, 3)
    return [first, own] if name == "L2" else [first]


def last(plateaus: Sequence[levels.Plateau], known: dict[str, float] = ZEN, end: float = 128.0 * MIB) -> str:
    return level_names.named(plateaus, known, end=end)[-1].name


def test_a_share_of_the_last_cache_that_never_lies_flat_behind_it_has_its_name() -> None:
    assert last([*before_it(), flat_to(1.48e6, 8.39e6)]) == "L3"


@pytest.mark.parametrize(
    ("plateaus", "known", "end"),
    [
        ([*before_it("L1"), flat_to(1.48e6, 8.39e6)], ZEN, 128.0 * MIB),  # L2 was not seen: L2 or L3
        ([*before_it(), flat_to(1.48e6, 17e6)], ZEN, 128.0 * MIB),  # it reaches beyond L3: L3 or DRAM
        ([*before_it(), flat_to(0.95e6, 8.39e6)], ZEN, 128.0 * MIB),  # it begins inside L2
        ([*before_it(), flat_to(4.2e6, 8.39e6)], ZEN, 128.0 * MIB),  # another level fits between
        ([*before_it(), flat_to(1.48e6, 8.39e6)], ZEN, 8.39e6),  # nothing falls behind it
        ([*before_it(), flat_to(1.48e6, 8.39e6)], {**ZEN, "L3": 1024.0 * MIB}, 2048.0 * MIB),  # no share
        ([*before_it("L1"), flat_to(65536.0, 262144.0)], {**ZEN, "L3": 0.5 * MIB}, 128.0 * MIB),  # L2 or L3
        ([flat_to(65536.0, 262144.0)], ZEN, 128.0 * MIB),  # nothing before it
    ],
)
def test_a_plateau_before_a_fall_that_may_be_another_level_has_no_name(
    plateaus: Sequence[levels.Plateau], known: dict[str, float], end: float
) -> None:
    assert last(plateaus, known, end) == ""
