"""Labels: names stay unique when shortened, boxes stay clear of each other."""

from __future__ import annotations

import math
import random
from itertools import combinations

import pytest

from bench.report.labels import Box, overlap, place, shorten


def test_short_names_are_kept() -> None:
    assert shorten(["gemm", "dot", "gemm"], 10) == ["gemm", "dot", "gemm"]


@pytest.mark.parametrize("limit", [8, 12, 30])
def test_hundred_long_names_stay_unique(limit: int) -> None:
    names = ["void cutlass::Kernel<" + "x" * 250 + f", {i}>" + "y" * 40 for i in range(100)]
    short = shorten(names, limit)
    assert len(set(short)) == 100
    assert max(map(len, short)) <= limit
    assert all(text[0] == "v" for text in short)


def test_shortened_name_never_takes_the_name_of_another() -> None:
    first = shorten(["abcdefghijkl"], 8)[0]
    assert first == "abcd…jkl"
    assert shorten(["abcdefghijkl", first], 8)[1] == first
    assert len(set(shorten(["abcdefghijkl", first], 8))) == 2


def test_overlap_is_the_shared_area() -> None:
    assert overlap((0, 0, 2, 2), (1, 1, 3, 4)) == 1
    assert overlap((0, 0, 1, 1), (1, 0, 2, 1)) == 0


def crowd(count: int) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    dice = random.Random(5)
    points = [(dice.uniform(50, 950), dice.uniform(50, 650)) for _ in range(count)]
    return points, [(60.0, 12.0)] * count


def test_labels_of_a_crowd_do_not_overlap() -> None:
    points, sizes = crowd(40)
    boxes = place(points, sizes, [], (0, 0, 1000, 700), 5)
    assert sum(overlap(a, b) for a, b in combinations(boxes, 2)) == 0
    inside = [box for box in boxes if box[0] >= 0 and box[1] >= 0 and box[2] <= 1000 and box[3] <= 700]
    assert len(inside) == 40
    assert boxes == place(points, sizes, [], (0, 0, 1000, 700), 5)


def test_label_keeps_its_size_stays_near_and_leaves_its_point_free() -> None:
    points, sizes = crowd(40)
    for (x, y), box in zip(points, place(points, sizes, [], (0, 0, 1000, 700), 5), strict=True):
        assert (box[2] - box[0], box[3] - box[1]) == (pytest.approx(60), pytest.approx(12))
        nearest = (min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3]))
        assert 0 < math.dist((x, y), nearest) <= 5 * 13


def test_obstacle_moves_the_label() -> None:
    free = place([(100, 100)], [(40, 10)], [], (0, 0, 500, 500), 5)[0]
    assert free[0] > 100
    wall: Box = (101, 0, 500, 500)
    moved = place([(100, 100)], [(40, 10)], [wall], (0, 0, 500, 500), 5)[0]
    assert moved[2] < 101
    assert overlap(moved, wall) == 0


def test_label_at_the_edge_turns_inwards() -> None:
    box = place([(495, 250)], [(40, 10)], [], (0, 0, 500, 500), 5)[0]
    assert box[2] <= 500


def test_no_points_no_boxes() -> None:
    assert place([], [], [], (0, 0, 1, 1), 1) == []
