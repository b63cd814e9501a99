"""Chunk loops to native functions through Numba: the primitives as machine code, compiled objects cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numba as _numba
from llvmlite import ir
from numba import extending as _extending

from bench.native.jit import numba_folder
from bench.workloads import primitives

numba: Any = _numba  # whether it carries types, and which, depends on its version
extending: Any = _extending
carray, types = numba.carray, numba.types

I32, I64 = ir.IntType(32), ir.IntType(64)
LINE_BYTES = 64
FAST = {"reassoc", "contract", "nsz", "arcp", "nnan"}
"""Sums may be reordered and fused, no operand is a NaN; infinities keep their meaning."""

OPTIONS: dict[str, Any] = {"fastmath": FAST, "error_model": "numpy"}
Body = Callable[[Any], None]
Part = Callable[..., Any]
ARGUMENTS = types.void(types.CPointer(types.int64))
_kept: list[Any] = []


numba.config.CACHE_DIR = numba.config.CACHE_DIR or numba_folder()


@cache
def address(body: Body, *parts: Part, exact: tuple[Part, ...] = ()) -> int:
    """Address of `void f(int64 *args)` compiled from `body`.

    parts: plain functions that it calls;  exact: those whose sums must keep their order
    """
    _register(parts, exact)
    try:
        function = numba.cfunc(ARGUMENTS, cache=True, **OPTIONS)(body)
    except (RuntimeError, OSError):  # no folder that can hold the cache: compile for this process only
        function = numba.cfunc(ARGUMENTS, **OPTIONS)(body)
    _kept.append(function)
    return int(function.address)


def _register(parts: Sequence[Part], exact: Sequence[Part]) -> None:
    for part in parts:
        extending.register_jitable(**OPTIONS)(part)
    for part in exact:
        extending.register_jitable(**{**OPTIONS, "fastmath": {"contract"}})(part)


def assembly(body: Body, *parts: Part, exact: tuple[Part, ...] = ()) -> str:
    """Machine code of a chunk loop as text, for the test that it is vectorised."""
    _register(parts, exact)
    return str(numba.cfunc(ARGUMENTS, **OPTIONS)(body)._library.get_asm_str())


def machine_code(plain: Callable[..., Any]) -> Callable[[Callable[..., Any]], None]:
    """Decorator: compiled callers of `plain` get the implementation that this function returns."""

    def register(choose: Callable[..., Any]) -> None:
        choose.__annotations__.clear()  # Numba wants its signature to equal that of the implementation
        extending.overload(plain)(choose)

    return register


def _pointer_to(item: Any) -> Any:
    def pointer(_context: Any, number: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(item)(types.int64), code

    return extending.intrinsic(pointer)


_double_pointer = _pointer_to(types.float64)
_float_pointer = _pointer_to(types.float32)
_index_pointer = _pointer_to(types.uint32)


@machine_code(primitives.doubles)
def _doubles(address: Any, count: Any) -> Any:
    return lambda address, count: carray(_double_pointer(address), (count,))


@machine_code(primitives.floats)
def _floats(address: Any, count: Any) -> Any:
    return lambda address, count: carray(_float_pointer(address), (count,))


@machine_code(primitives.indices)
def _indices(address: Any, count: Any) -> Any:
    return lambda address, count: carray(_index_pointer(address), (count,))


def counted_loop(
    builder: Any,
    stop: Any,
    step: int,
    body: Callable[[Any, list[Any]], list[Any]],
    carried: Sequence[Any] = (),
) -> list[Any]:
    """Emit: for i in 0, step, ... < stop: carried = body(i, carried); at least one trip."""
    before = builder.block
    inside, after = builder.append_basic_block("inside"), builder.append_basic_block("after")
    builder.branch(inside)
    builder.position_at_end(inside)
    index = builder.phi(I64)
    index.add_incoming(ir.Constant(I64, 0), before)
    phis = [builder.phi(value.type) for value in carried]
    results = body(index, list(phis))
    following = builder.add(index, ir.Constant(I64, step))
    index.add_incoming(following, builder.block)
    for phi, first, result in zip(phis, carried, results, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(result, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, stop), inside, after)
    builder.position_at_end(after)
    return results


def vector_at(builder: Any, address: Any, kind: Any) -> Any:
    """An address (integer) as a pointer to a vector type."""
    return builder.inttoptr(address, kind.as_pointer())


LINE = ir.VectorType(ir.DoubleType(), LINE_BYTES // 8)  # the code generator cuts it to the machine's width


def _copying(past: bool) -> Any:
    """An intrinsic copy(destination, source, size) with one kind of store."""

    def copy(_context: Any, destination: Any, source: Any, size: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to, start, stop = args

            def line(i: Any, _: list[Any]) -> list[Any]:
                value = builder.load(vector_at(builder, builder.add(start, i), LINE), align=8)
                store = builder.store(value, vector_at(builder, builder.add(to, i), LINE), align=LINE_BYTES)
                if past:
                    store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(I32, 1)]))
                return []

            counted_loop(builder, stop, LINE_BYTES, line)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), code

    return extending.intrinsic(copy)


_stream, _store = _copying(past=True), _copying(past=False)


@machine_code(primitives.write_out)
def _write_out(destination: Any, source: Any, size: Any, past: Any) -> Any:
    return lambda destination, source, size, past: (
        _stream(destination, source, size) if past else _store(destination, source, size)
    )


def _fence_code(_context: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), code


_fence = extending.intrinsic(_fence_code)


@machine_code(primitives.drain)
def _drain() -> Any:
    return lambda: _fence()


def _ask_code(_context: Any, where: Any, size: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
        name = "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        flags = [ir.Constant(I32, flag) for flag in (0, 3, 1)]

        def line(i: Any, _: list[Any]) -> list[Any]:
            builder.call(function, [builder.inttoptr(builder.add(args[0], i), byte), *flags])
            return []

        counted_loop(builder, args[1], LINE_BYTES, line)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


_ask = extending.intrinsic(_ask_code)


@machine_code(primitives.prefetch)
def _prefetch(address: Any, size: Any) -> Any:
    return lambda address, size: _ask(address, size)


def _exponent_code(_context: Any, exponent: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        biased = builder.add(args[0], ir.Constant(I32, 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(I32, 23)), ir.FloatType())

    return types.float32(types.int32), code


_exponent = extending.intrinsic(_exponent_code)


@machine_code(primitives.power_of_two)
def _power_of_two(exponent: Any) -> Any:
    return lambda exponent: _exponent(exponent)


def _turn4_code(_context: Any, to: Any, to_pitch: Any, source: Any, pitch: Any) -> Any:
    four = ir.VectorType(ir.DoubleType(), primitives.TURN)

    def pick(builder: Any, a: Any, b: Any, lanes: tuple[int, ...]) -> Any:
        return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, 4), list(lanes)))

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out, out_pitch, start, start_pitch = args
        place = start
        rows = []
        for _ in range(4):
            rows.append(builder.load(vector_at(builder, place, four), align=32))
            place = builder.add(place, start_pitch)
        low = [pick(builder, rows[i], rows[i + 1], (0, 4, 2, 6)) for i in (0, 2)]
        high = [pick(builder, rows[i], rows[i + 1], (1, 5, 3, 7)) for i in (0, 2)]
        columns = [
            pick(builder, low[0], low[1], (0, 1, 4, 5)),
            pick(builder, high[0], high[1], (0, 1, 4, 5)),
            pick(builder, low[0], low[1], (2, 3, 6, 7)),
            pick(builder, high[0], high[1], (2, 3, 6, 7)),
        ]
        for column in columns:
            builder.store(column, vector_at(builder, out, four), align=32)
            out = builder.add(out, out_pitch)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), code


_turn4 = extending.intrinsic(_turn4_code)


@machine_code(primitives.turn)
def _turn(destination: Any, destination_pitch: Any, source: Any, source_pitch: Any) -> Any:
    return lambda destination, destination_pitch, source, source_pitch: _turn4(
        destination, destination_pitch, source, source_pitch
    )


def _larger_code(_context: Any, a: Any, b: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        flags = ("nnan", "nsz")
        above = builder.fcmp_ordered(">", args[1], args[0], flags=flags)
        return builder.select(above, args[1], args[0], flags=flags)

    return types.float32(types.float32, types.float32), code


_larger = extending.intrinsic(_larger_code)


@machine_code(primitives.larger)
def _max(a: Any, b: Any) -> Any:
    return lambda a, b: _larger(a, b)
