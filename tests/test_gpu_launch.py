"""The launch shape: what covers the items, what fits on the device, and what names a form."""

from __future__ import annotations

import pytest

from bench.errors import DeviceError
from bench.gpu.launch import Launch, in_waves, launch_shape, split_variant, stream_form

FACTS = {"sm_count": 10, "max_threads_per_sm": 1536}


@pytest.mark.parametrize(("items", "grid"), [(1, 1), (1024, 1), (1025, 2), (10 * 1024, 10)])
def test_a_cover_has_a_thread_for_every_item(items: int, grid: int) -> None:
    launch = launch_shape("cover", 256, FACTS, items, 4)
    assert launch == Launch(grid, 256)
    assert (launch.grid - 1) * 1024 < items <= launch.threads * 4


@pytest.mark.parametrize(
    ("block", "held", "grid"),
    [(256, None, 60), (1024, None, 10), (640, None, 20), (256, 4, 40), (256, 9, 60)],
)
def test_a_persistent_grid_is_what_fits_at_once(block: int, held: int | None, grid: int) -> None:
    assert launch_shape("persistent", block, FACTS, blocks_per_sm=held).grid == grid


@pytest.mark.parametrize(
    ("tiles", "grid", "passed"),
    [(0, 60, 0), (479, 60, 479), (480, 60, 480), (959, 60, 900), (1000, 120, 960), (10**6, 480, 999840)],
)
def test_blocks_of_a_persistent_grid_follow_each_other_in_waves_with_equal_work(
    tiles: int, grid: int, passed: int
) -> None:
    launch, found = in_waves(Launch(60, 256), tiles)
    assert (launch, found) == (Launch(grid, 256), passed)
    assert tiles < 480 or (found % grid == 0 and found // grid >= 8 and found > 0.88 * tiles)


def test_what_cannot_be_launched_is_refused() -> None:
    with pytest.raises(DeviceError, match="does not fit on an SM"):
        launch_shape("persistent", 2048, FACTS)
    with pytest.raises(DeviceError, match="needs both"):
        launch_shape("cover", 256, FACTS, items=0, items_a_thread=4)
    with pytest.raises(DeviceError, match="valid: cover, persistent"):
        launch_shape("covers", 256, FACTS)


def test_names_of_variants() -> None:
    assert split_variant("v16 l4 b256") == ("v16 l4", 256)
    assert split_variant("8 chains b1024") == ("8 chains", 1024)
    assert stream_form("v16 l4") == (16, 4)
    assert Launch(1056, 256).text == "1056 x 256"
    for wrong in ("v16 l4", "b256", "8 chains b256 x"):
        with pytest.raises(DeviceError, match="names no block size"):
            split_variant(wrong)
    with pytest.raises(DeviceError, match="no form of a stream"):
        stream_form("v16 l4 cs")
