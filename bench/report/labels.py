"""Labels that stay readable: names shortened but unique, boxes placed without overlap."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

Box = tuple[float, float, float, float]
"""left, bottom, right, top in any one unit of length."""

DIRECTIONS = tuple(
    (math.cos(math.radians(angle)), math.sin(math.radians(angle)))
    for angle in (0, 180, -45, -135, 45, 135, -90, 90, -20, 20, -160, 160, -70, -110, 70, 110)
)
"""Where a label may stand around its point: right first, then left, then the corners."""

RINGS = 9
"""How many distances from the point are tried."""


def shorten(names: Sequence[str], limit: int) -> list[str]:
    """Each name on at most `limit` characters; names that differ stay different.

    A long name loses its middle; where that makes two names equal they end in a number.
    """
    taken: dict[str, str] = {name: name for name in names if len(name) <= limit}
    short: dict[str, str] = {}
    for name in dict.fromkeys(names):
        text, count = _cut(name, limit), 1
        while taken.setdefault(text, name) != name:
            count += 1
            text = f"{_cut(name, limit - len(str(count)) - 1)}~{count}"
        short[name] = text
    return [short[name] for name in names]


def _cut(name: str, limit: int) -> str:
    if len(name) <= limit:
        return name
    head = limit // 2
    return f"{name[:head]}…{name[len(name) - (limit - 1 - head) :]}" if limit > 2 else name[:limit]


def overlap(a: Box, b: Box) -> float:
    """Area that two boxes share."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0


def _outside(box: Box, frame: Box) -> float:
    area = (box[2] - box[0]) * (box[3] - box[1])
    return area - overlap(box, frame)


def _candidates(
    point: tuple[float, float], size: tuple[float, float], gap: float
) -> Iterator[tuple[float, Box]]:
    """Boxes of `size` around a point with the cost of standing there, cheapest first."""
    (x, y), (width, height) = point, size
    for ring in range(RINGS):
        reach = gap * (1 + 1.5 * ring)
        for rank, (cos, sin) in enumerate(DIRECTIONS):
            left = x + cos * reach - width * _pull(cos)
            bottom = y + sin * reach - height * _pull(sin)
            yield 0.02 * rank + 0.4 * ring, (left, bottom, left + width, bottom + height)


def _pull(component: float) -> float:
    """Which part of the box lies before the point: none when it stands wholly after it, or half."""
    return 0.5 if abs(component) < 0.3 else 0.0 if component > 0 else 1.0


def place(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    obstacles: Sequence[Box],
    frame: Box,
    gap: float,
) -> list[Box]:
    """A box of each size near each point, away from obstacles, other points and other labels.

    Greedy in order of crowding: the point with most neighbours chooses first. Same input, same
    output. gap is the least distance from the point, in the unit of the boxes.
    """
    reach = 0.6 * gap
    dots = [(x - reach, y - reach, x + reach, y + reach) for x, y in points]
    placed: dict[int, Box] = {}
    crowd = [-sum(1 / (gap + math.dist(p, q)) for q in points) for p in points]
    for i in sorted(range(len(points)), key=lambda i: (crowd[i], i)):
        walls = _near(points[i], sizes[i], gap, (*obstacles, *placed.values(), *dots))
        placed[i] = _best(_candidates(points[i], sizes[i], gap), walls, frame, gap / 4)
    return [placed[i] for i in range(len(points))]


def _near(
    point: tuple[float, float], size: tuple[float, float], gap: float, walls: Sequence[Box]
) -> list[Box]:
    """The walls that any candidate box could touch."""
    far = gap * (1 + 1.5 * RINGS)
    x, y = point[0], point[1]
    reach = (x - far - size[0], y - far - size[1], x + far + size[0], y + far + size[1])
    return [wall for wall in walls if overlap(wall, reach)]


def _best(candidates: Iterator[tuple[float, Box]], walls: Sequence[Box], frame: Box, thin: float) -> Box:
    """The candidate with the least cost: preference plus what it hides or what leaves the frame."""
    least, chosen = math.inf, (0.0, 0.0, 0.0, 0.0)
    for preference, box in candidates:
        if preference >= least:
            break
        cost = preference + _harm(box, walls, frame, thin)
        if cost < least:
            least, chosen = cost, box
    return chosen


def _harm(box: Box, walls: Sequence[Box], frame: Box, thin: float) -> float:
    """How much a box hides: a little for each thing touched, more for the part of it that is covered.

    Walls thinner than `thin` are lines, which may be crossed more readily than a mark.
    """
    area = (box[2] - box[0]) * (box[3] - box[1])
    cost = 240 * _outside(box, frame) / area
    left, bottom, right, top = box
    for wall in walls:
        if wall[0] < right and wall[2] > left and wall[1] < top and wall[3] > bottom:
            shared = overlap(box, wall)
            is_line = min(wall[2] - wall[0], wall[3] - wall[1]) < thin
            cost += (0.15 if is_line else 1.2) + 60 * shared / area
    return cost
