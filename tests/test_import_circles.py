"""No file of the rooms below needs another that needs it, be it late or for its types alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from bench.checkout import CHECKOUT


def needed(path: Path, room: str) -> Iterator[str]:
    """Names of files of a room that a file of it imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == room:
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{room}."):
            yield str(node.module).removeprefix(f"{room}.")


def order(folder: Path, room: str) -> list[str]:
    """Files of a room, each behind those that it needs; CycleError where there is no such order."""
    files = {path.stem: path for path in folder.glob("*.py") if path.stem != "__init__"}
    graph = {name: {n for n in needed(path, room) if n in files} for name, path in files.items()}
    return list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize(
    ("room", "first", "then"), [("triage", "sweeps", "case"), ("workloads", "shapes", "registers")]
)
def test_rooms_have_an_order(room: str, first: str, then: str) -> None:
    found = order(CHECKOUT / "bench" / room, f"bench.{room}")
    assert found.index(first) < found.index(then)


def test_a_circle_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from room import b\n", encoding="utf-8")
    (tmp_path / "b.py").write_text("def late():\n    from room.a import c\n", encoding="utf-8")
    with pytest.raises(CycleError):
        order(tmp_path, "room")
