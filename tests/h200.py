"""An H200 as the header of a run describes it, for tests of the reference figures."""

from __future__ import annotations

from typing import Any

GIB = 2**30


def gpu(**changes: Any) -> dict[str, Any]:
    """The device of a header: an H200."""
    facts = {"compute_capability": 90, "mig": {}, "unit": "SM"}
    fields = {"kind": "cuda", "name": "NVIDIA H200", "threads": 132, "memory_bytes": 139.8 * GIB}
    return {**fields, "facts": facts, "identity": {"mig": ""}, **changes}
