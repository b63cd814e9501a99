"""The machine code of the Numba CUDA kernels, compiled without a GPU: counts, widths, nothing spilled."""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from bench.audit import sass
from bench.backends.numba_reference import CHAINS, DTYPE, STEPS
from kernels.stream import KERNELS as STREAMS

CAPABILITIES = [
    pytest.param((8, 0), id="sm_80"),
    pytest.param((9, 0), id="sm_90"),
    pytest.param((10, 0), id="sm_100", marks=pytest.mark.slow),
    pytest.param((12, 0), id="sm_120", marks=pytest.mark.slow),
]
SOME = [(kernel.name, ("fp64", "fp32")[i % 2]) for i, kernel in enumerate(STREAMS)]
OTHERS = [(kernel, "fp64" if name == "fp32" else "fp32") for kernel, name in SOME]
OPCODES = {"fp64": "DFMA", "fp32": "FFMA", "int32": r"IMAD(\.\w+)*"}


@pytest.fixture(scope="module")
def compiled() -> Callable[..., sass.Function]:
    """compiled(kernel, types, capability): machine code of a kernel; skipped only without numba-cuda."""
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed: make setup-dev")
    from cuda.core import Linker, LinkerOptions, ObjectCode

    from bench.audit import toolchain
    from bench.backends.numba_kernels import cuda

    disassembler = toolchain.find().disassembler

    def make(kernel: Any, types: tuple[Any, ...], capability: tuple[int, int]) -> sass.Function:
        code, _ = cuda.compile(
            kernel.py_func, types, cc=capability, device=False, abi="numba", output="ltoir"
        )
        options = LinkerOptions(arch=f"sm_{capability[0]}{capability[1]}", link_time_optimization=True)
        binary = Linker(ObjectCode.from_ltoir(code), options=options).link("cubin").code
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(binary)
            file.flush()
            words = [disassembler, "-c", "-hex", file.name]
            listing = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        (function,) = sass.parse(listing).values()
        return function

    return make


def arguments(name: str) -> dict[str, tuple[Any, ...]]:
    """Types of the arguments by family, as lazy compilation would find them on a GPU."""
    from numba import types

    item = {"fp64": types.float64, "fp32": types.float32, "int32": types.int32}[name]
    array = item[::1]
    return {"fma": (array, array, item, types.int32), "stream": (array, array, array, item, types.int64)}


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", ["fp64", "fp32", "int32"])
def test_a_trip_of_a_chain_is_256_multiply_adds_and_little_else(
    compiled: Callable[..., sass.Function], name: str, capability: tuple[int, int]
) -> None:
    from bench.backends.numba_kernels import Kernels

    function = compiled(Kernels().chain(name), arguments(name)["fma"], capability)
    hot = max(function.loops, key=lambda loop: sass.count(loop.instructions, OPCODES[name])).instructions
    body = [i for i in hot if i.base != "NOP"]
    assert sass.count(body, OPCODES[name]) == CHAINS * STEPS == 256
    assert 256 / len(body) > 0.97
    assert sass.count(function.instructions, r"(LDL|STL)(\..*)?") == 0
    if name == "fp32":
        assert sass.count(function.instructions, r"D(FMA|ADD|MUL).*|F2F.*") == 0, "nothing in fp64"


@pytest.mark.parametrize(("kernel", "name"), SOME)
def test_streams_move_128_bits_an_access(
    compiled: Callable[..., sass.Function], kernel: str, name: str
) -> None:
    check_stream(compiled, kernel, name, (9, 0), 4)


@pytest.mark.slow
@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0), (12, 0)], ids=str)
@pytest.mark.parametrize(("kernel", "name"), OTHERS)
def test_streams_move_128_bits_an_access_on_every_architecture(
    compiled: Callable[..., sass.Function], kernel: str, name: str, capability: tuple[int, int]
) -> None:
    check_stream(compiled, kernel, name, capability, 8 if capability == (9, 0) else 4)


def check_stream(
    compiled: Callable[..., sass.Function], kernel: str, name: str, capability: tuple[int, int], loads: int
) -> None:
    from bench.backends.numba_kernels import Kernels

    made = Kernels().stream(kernel, name, 16 // DTYPE[name]().itemsize, loads)
    function = compiled(made, arguments(name)["stream"], capability)
    moved = [i for i in function.instructions if i.base in ("LDG", "STG")]
    loaded = {"write": 0, "add": 2, "triad": 2}.get(kernel, 1) * loads
    if kernel == "read":  # unrolled by the compiler; one result a thread is stored
        assert all(".128" in i.opcode for i in moved[:-1]) and moved[-1].base == "STG"
        assert len(moved) - 1 >= loads and (len(moved) - 1) % loads == 0
    else:
        assert all(".128" in i.opcode for i in moved), [i.opcode for i in moved]
        assert [i.base for i in moved] == ["LDG"] * loaded + ["STG"] * loads, (
            "all loads before the first store"
        )
    assert sass.count(function.instructions, r"(LDL|STL)(\..*)?") == 0


def test_a_scalar_body_would_not_pass(compiled: Callable[..., sass.Function]) -> None:
    from bench.backends.numba_kernels import Kernels

    with pytest.raises(AssertionError):
        made = Kernels().stream("copy", "fp32", 1, 4)
        function = compiled(made, arguments("fp32")["stream"], (9, 0))
        assert all(".128" in i.opcode for i in function.instructions if i.base in ("LDG", "STG"))


def test_the_delay_reads_the_timer_in_its_loop(compiled: Callable[..., sass.Function]) -> None:
    from numba import types

    from bench.backends.numba_kernels import Kernels

    function = compiled(Kernels().delay, (types.int64,), (9, 0))
    assert function.loops and "SR_GLOBALTIMERLO" in repr(function.loops[0].instructions)
