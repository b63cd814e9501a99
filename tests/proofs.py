"""Which proofs every CUDA body has, told by its forms; `python -m tests.proofs` writes the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.audit.expectations import is_made_for
from bench.audit.toolchain import ARCHITECTURES
from kernels import CUDA
from kernels.spec import CudaFamily, CudaForm

PAGE = Path(__file__).resolve().parent.parent / "docs/proofs.md"

NUMERICS = ("stream", "fma", "mix", "launch", "overlap")
"""Families whose functions tests/test_shim.py runs on the CPU and compares with NumPy."""

COUNTED = ("stream", "fma", "mix", "launch", "overlap")
"""Families whose costs tests/test_shim.py counts with counting numbers."""

TWINS = {"stream": ("fp64", "fp32"), "fma": ("fp64", "fp32", "int32")}
"""What the Numba backend implements a second time; its bodies run in the CUDA simulator."""

TEXT = """# Which proofs each CUDA body has

Written by `python -m tests.proofs` from `kernels.CUDA`; a test compares it with the functions that there are.

- **audit**: compiled for every architecture it exists on (all: sm_70 to sm_121), its machine code holds
  what its `Expect` says: opcodes counted exactly, width of loads and stores, share of the hot loop,
  loads in flight, registers, no spill (`python -m bench audit`, no GPU needed; mutations in
  `tests/test_cuda_spoiled.py`).
- **numerics**: compiled by g++ through `tests/shim/`, run thread by thread, equal to its NumPy reference: to
  the last bit for fma and mix, whose references round as a device does (`tests/test_shim.py`).
- **cost**: the same with counting numbers: FLOP, bytes loaded and bytes stored equal the declared work
  (`tests/test_shim.py`, which also breaks bodies and sees the proof fail).
- **simulator**: an independent Numba body of the same kernel runs in Numba's CUDA simulator and equals the
  reference (`tests/test_numba_cuda.py`); on a GPU `run --cross-check` compares the two.
- **GPU**: on a device each function is compared with its reference before it is timed, and is not timed
  if it differs; `make gpu-check` adds timing, doubling and layout tests.

No barrier and no inline PTX runs on a CPU: matrix instructions, working sets and pointer chases have the
audit (spoiled on purpose in `tests/test_cuda_spoiled_hierarchy.py`) and the check on the GPU, which stand-ins
of the functions go through, right ones and wrong ones (`tests/test_cuda_hierarchy.py`,
`tests/test_cuda_latencies.py`).

"""

HEADER = ("family", "kernel", "precision", "functions", "audit", "numerics", "cost", "simulator", "GPU")


def row(family: str, forms: tuple[CudaForm, ...]) -> tuple[str, ...]:
    """A line of the table for forms of one kernel and precision."""
    first, shim = forms[0], all(form.shim for form in forms)
    there = [a for a in ARCHITECTURES if any(is_made_for(form, a) for form in forms)]
    audited = bool(there) and all(form.expect.opcodes for form in forms)
    where = "all" if {a for a in ARCHITECTURES if a.isdigit()} <= set(there) else f"sm_{', '.join(there)}"
    return (
        *(family, first.kernel, first.precision, str(len(forms))),
        where if audited else "no",
        "yes" if shim and family in NUMERICS else "no",
        "yes" if shim and family in COUNTED else "no",
        "yes" if first.precision in TWINS.get(family, ()) else "no",
        "before timing",
    )


def table(families: Mapping[str, CudaFamily] = CUDA) -> str:
    """The table in Markdown."""
    groups: dict[tuple[str, str, str], list[CudaForm]] = {}
    for name, family in families.items():
        for form in family.forms:
            groups.setdefault((name, form.kernel, form.precision), []).append(form)
    rows = [HEADER, ("---",) * len(HEADER), *(row(key[0], tuple(forms)) for key, forms in groups.items())]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


if __name__ == "__main__":
    PAGE.write_text(TEXT + table(), encoding="utf-8")
