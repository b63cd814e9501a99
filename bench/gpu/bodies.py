"""Our own CUDA functions made ready: which form a point names, its memory, its launches and its check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from bench.backends import Prepared
from bench.device import Device
from bench.errors import DeviceError, VerificationError
from bench.gpu.batches import Batch, Batches, Task
from bench.gpu.engine import Engine
from bench.gpu.launch import Launch, in_waves, launch_shape, split_variant, stream_form
from bench.gpu.modules import Function, entries, lacking
from bench.profile.records import Point
from kernels import CUDA, KERNELS, fma, mix, tensor
from kernels.encoding import encoded, item_type
from kernels.intensities import TYPES
from kernels.spec import ITEM_BYTES, CudaFamily, CudaForm, Work

CHAINS: Mapping[str, ModuleType] = {"fma": fma, "tensor": tensor}
"""Families whose operands stay in registers; each says itself what b and s hold and what a must."""

MOST_TRIPS = 2**31 - 1
MOST_LAUNCHES = 1 << 30

CHECK_BLOCKS = 2
"""Blocks of the small launch that is compared with the reference: their seams count."""

CHECK_FACTOR = 1.5
"""s of a stream while checking: shows in every result and is exact. While timing it is 1: nothing grows."""

EXACTLY = 0.0
"""With a factor that is a power of two every step rounds once, on the GPU as in the reference."""

GUARD = 0xA5
"""Byte that fills what a stream must not touch, behind the end of its destination."""


@dataclass
class Ready:
    """What a prepared point keeps: its task, its check, and the memory that both use.

    told(amount, batch): facts that the device wrote beside its results
    """

    task: Task
    check: Callable[[], None]
    memory: list[Any] = field(default_factory=list)
    close: Callable[[], None] = lambda: None
    told: Callable[[int, Batch], Mapping[str, Any]] = lambda amount, batch: {}


@dataclass(frozen=True)
class Chosen:
    """The form that a point names, compiled, with its launch for so many items."""

    family: str
    form: CudaForm
    function: Function
    block: int
    blocks_per_sm: int


def variants(capability: int, kernel: str, precision: str) -> tuple[str, ...]:
    """Every form of a kernel in every block size, best guesses first: all forms in their first size, ..."""
    forms = [f for _, f in entries(CUDA, kernel, precision) if not lacking(f, capability)]
    sizes = range(max((len(form.blocks) for form in forms), default=0))
    return tuple(f"{f.variant} b{f.blocks[i]}" for i in sizes for f in forms if i < len(f.blocks))


def named(point: Point, capability: int) -> tuple[str, CudaForm, int]:
    """Family, form and block size that a point names; DeviceError where there is none for this GPU."""
    label = point.precision.label
    there = entries(CUDA, point.kernel, label)
    if not there:
        raise DeviceError(f"no CUDA body for {label} {point.kernel} in this version")
    able = [(name, form) for name, form in there if not lacking(form, capability)]
    if not able:
        raise DeviceError(lacking(there[0][1], capability))
    if not point.variant:
        return (*able[0], able[0][1].blocks[0])
    variant, block = split_variant(point.variant)
    for name, form in able:
        if form.variant == variant:
            return name, form, block
    known = ", ".join(dict.fromkeys(form.variant for _, form in able))
    raise DeviceError(f"{point.kernel} has no form {variant!r} on this GPU; there are {known}")


class Bodies:
    """Prepares points of our own functions on one engine; `batches` times what is launched there."""

    def __init__(self, engine: Engine, device: Device, families: Mapping[str, CudaFamily] = CUDA) -> None:
        self.engine, self.device, self.families = engine, device, families
        self.batches = Batches(engine)

    def prepare(self, point: Point) -> Prepared:
        """Compile, allocate and fill a chain, a stream or a point of the intensity sweep."""
        chosen = self.choose(point)
        if chosen.family in CHAINS:
            return self.chain(point, chosen, self._shape(chosen))
        return self._mix(point, chosen) if chosen.family == "mix" else self._stream(point, chosen)

    def choose(self, point: Point) -> Chosen:
        """The form of a point, compiled, and how many of its blocks an SM holds."""
        return self.compiled(*named(point, self.engine.capability))

    def compiled(self, name: str, form: CudaForm, block: int) -> Chosen:
        """A form of family `name`, compiled; DeviceError where an SM does not hold a block of that size."""
        function = self.engine.modules.form(name, self.families[name], form)
        return Chosen(name, form, function, block, self.engine.blocks_per_sm(function, block))

    def _shape(self, chosen: Chosen, items: int = 0) -> Launch:
        form = chosen.form
        held = chosen.blocks_per_sm
        return launch_shape(form.grid, chosen.block, self.device.facts, items, form.items, held)

    def _waved(self, chosen: Chosen, items: int) -> tuple[Launch, int]:
        """The launch over so many items, and how many of them it passes: of a persistent grid whole waves."""
        launch, held = self._shape(chosen, items), chosen.form.items
        if chosen.form.grid != "persistent":
            return launch, items
        if not held:  # read: what a thread has in flight
            access, loads = stream_form(chosen.form.variant.removesuffix(" cs"))
            held = access * loads // ITEM_BYTES[chosen.form.precision]
        tile = chosen.block * held
        launch, tiles = in_waves(launch, items // tile)
        return launch, tiles * tile or items

    def facts(self, chosen: Chosen, launch: Launch, **more: Any) -> dict[str, Any]:
        """What is kept of the choice: launch shape, registers, occupancy, versions."""
        most, function = self.device.facts.get("max_threads_per_sm"), chosen.function
        threads = chosen.blocks_per_sm * chosen.block
        return {
            "launch": launch.text,
            "registers": function.registers,
            "local_bytes": function.local_bytes,
            "blocks_per_sm": chosen.blocks_per_sm,
            "occupancy": threads / int(most) if most else None,
            **more,
            **self.engine.versions(),
        }

    def launcher(self, chosen: Chosen, launch: Launch, arrays: Sequence[Any], n: int) -> Any:
        """launch(count): one launch with a, b, c and s (None where the form has none)."""
        engine, items = self.engine, np.int64(n)
        pointers = tuple(np.uintp(0 if array is None else array.ptr) for array in arrays)

        def once(count: int) -> None:
            engine.launch(chosen.function, launch.grid, launch.block, (*pointers, items, np.int32(count)))

        return once

    # -- chains: everything in registers or shared memory ---------------------------------------

    def chain(self, point: Point, chosen: Chosen, launch: Launch) -> Prepared:
        """Peak chains or matrix instructions in that launch."""
        form = chosen.form
        purpose = "zeros" if point.operands == "zeros" else "time"
        memory, once = self._chain_launch(chosen, launch, purpose)

        def work(amount: int) -> Work:
            done = form.flops * launch.threads * amount
            return KERNELS[point.kernel].work(
                ITEM_BYTES[point.precision.inputs], {"n": done // 2}, point.level
            )

        task = Task(f"{point.precision.label} {point.kernel}", once, whole=True)
        ready = Ready(task, lambda: self._check_chain(chosen, task.name), memory)
        return Prepared(point, work, 1, MOST_TRIPS, 1, self.facts(chosen, launch), ready)

    def _chain_launch(self, chosen: Chosen, launch: Launch, purpose: str) -> tuple[list[Any], Any]:
        """Results, operands and factor in memory, in that order, and launch(trips)."""
        family, form, engine = CHAINS[chosen.family], chosen.form, self.engine
        a = engine.upload(family.results(np, form, launch.threads))
        b, s = (engine.upload(make(np, form, purpose)) for make in (family.operands, family.start))
        once = self.launcher(chosen, launch, (a, b, None, s), launch.threads)
        return [a, b, s], once

    def check_layout(self, point: Point) -> None:
        """A matrix instruction on operands that all differ: wrong where one is not read from its place."""
        what = f"{point.precision.label} {point.kernel} by the layout of its operands"
        self._check_chain(self.choose(point), what, "layout")

    def _check_chain(self, chosen: Chosen, what: str, purpose: str = "check") -> None:
        family, form, launch = CHAINS[chosen.family], chosen.form, Launch(CHECK_BLOCKS, chosen.block)
        (a, *_), once = self._chain_launch(chosen, launch, purpose)
        once(family.MOST_TRIPS)
        stored = family.results(np, form, launch.threads)
        got = self._values(a.ptr, stored)
        b, s = family.operands(np, form, purpose), family.start(np, form, purpose)
        want = family.expected(np, form, b, s, launch.threads, family.MOST_TRIPS)
        compare(what, family.decoded(np, form, got), want, family.tolerance(np, form))

    def _values(self, address: int, like: Any) -> Any:
        """Device memory as an array of that type and shape."""
        return self.engine.download(address, like.nbytes).view(like.dtype).reshape(like.shape)

    # -- streams ---------------------------------------------------------------------------------

    def _items(self, point: Point, chosen: Chosen) -> int:
        """Items of an array, cut to whole tiles of a block; DeviceError where there is not one."""
        tile = chosen.block * max(1, chosen.form.items)
        items = point.sizes["bytes"] // ITEM_BYTES[point.precision.inputs] // tile * tile
        if items < 1:
            raise DeviceError(f"{point.sizes['bytes']} byte hold no tile of {tile} items: ask for more")
        return items

    def _stream(self, point: Point, chosen: Chosen) -> Prepared:
        engine, kernel, kind = self.engine, KERNELS[point.kernel], point.precision.inputs
        (launch, items), item = self._waved(chosen, self._items(point, chosen)), ITEM_BYTES[kind]
        shape: Any = kernel.shape
        sizes = dict.fromkeys((*shape.loads, *shape.stores), items * item)
        small = sum(sizes.values()) < self.device.last_level_cache_bytes  # only checks ask for so little
        sizes.setdefault("a", launch.threads * item)
        memory = [
            engine.random(sizes[name], kind, point.operands, seed) if name in sizes else None
            for seed, name in enumerate("abc", 1)
        ]
        memory.append(engine.upload(np.ones(1, item_type(np, kind))))
        once = self.launcher(chosen, launch, memory, items)

        def work(amount: int) -> Work:
            return kernel.work(item, {"n": items, "passes": amount}, point.level)

        task = Task(f"{kind} {point.kernel}", lambda amount: once(1), flushed=small)
        ready = Ready(task, lambda: self._check_stream(chosen, point, task.name), memory)
        facts = self.facts(chosen, launch, items=items, hidden_traffic=0.0)
        return Prepared(point, work, 1, MOST_LAUNCHES, 1, facts, ready)

    def _check_stream(self, chosen: Chosen, point: Point, what: str) -> None:
        """A small launch of the same function on arrays of its own, with a guard behind the destination."""
        form, block, engine = chosen.form, chosen.block, self.engine
        dtype, read = item_type(np, point.precision.inputs), form.grid == "persistent"
        items = block * (form.items * (CHECK_BLOCKS + 1) if form.items else 64 * CHECK_BLOCKS) + 7 * read
        launch = Launch(CHECK_BLOCKS if read else CHECK_BLOCKS + 1, block)
        rng = np.random.default_rng(items)
        a, b, c = (rng.uniform(0.5, 1.5, items).astype(dtype) for _ in "abc")
        guard = np.full(block, GUARD, np.uint8)
        room = np.concatenate([np.zeros(launch.threads, dtype) if read else a]).view(np.uint8)
        memory = [engine.upload(np.concatenate([room, guard])), engine.upload(b), engine.upload(c)]
        s = engine.upload(np.full(1, CHECK_FACTOR, dtype))
        self.launcher(chosen, launch, (*memory, s), items)(1)
        stored = engine.download(memory[0].ptr, room.nbytes + guard.nbytes)[0]
        if not np.array_equal(stored[room.nbytes :], guard):
            raise VerificationError(f"{what} writes behind the end of its array; it is not timed")
        got = stored[: room.nbytes].view(dtype)
        want = KERNELS[form.kernel].reference(np, a, b, c, dtype.type(CHECK_FACTOR))
        rounding = float(np.finfo(dtype).eps)
        if read:
            compare(what, np.sum(got, dtype=np.float64), want, rounding * (items / launch.threads + 64))
        else:
            compare(what, got, want, 2 * rounding)

    # -- the intensity sweep -----------------------------------------------------------------------

    def _mix(self, point: Point, chosen: Chosen) -> Prepared:
        engine, kind, form = self.engine, point.precision.inputs, chosen.form
        (launch, items), item = self._waved(chosen, self._items(point, chosen)), ITEM_BYTES[kind]
        launch, count = self._sparse(point, chosen, launch), trips(point, form)
        data = engine.random(items * item, kind, point.operands)
        s = engine.upload(self._mix_factor(kind, fma.FACTORS[kind]))
        memory, once = self._mix_launch(chosen, launch, data, s, items)
        sizes = {"n": items, "fma": point.sizes["fma"], "block": point.sizes["block"]}
        task = Task(f"{kind} {point.kernel}", lambda amount: once(count))

        def work(amount: int) -> Work:
            return KERNELS[point.kernel].work(item, sizes, point.level).times(amount)

        ready = Ready(task, lambda: self._check_mix(chosen, kind, count, task.name), memory)
        facts = self.facts(chosen, launch, items=items, trips=count)
        return Prepared(point, work, 1, MOST_LAUNCHES, 1, facts, ready)

    def _sparse(self, point: Point, chosen: Chosen, launch: Launch) -> Launch:
        """With so many blocks an SM as the point asks for: few of them overlap loads and arithmetic less."""
        wanted = point.sizes.get("blocks_per_sm", 0)
        if wanted and chosen.form.grid != "persistent":
            raise DeviceError(f"{point.kernel} covers its array: its blocks an SM cannot be chosen")
        if not wanted:
            return launch
        held = self._shape(chosen).grid
        return Launch(min(held, held // chosen.blocks_per_sm * wanted), launch.block)

    def _mix_launch(self, chosen: Chosen, launch: Launch, data: Any, s: Any, n: int) -> tuple[list[Any], Any]:
        """In place `data` is a; read-only it is b, and a gets one pack of at most 8 byte a thread."""
        if chosen.form.grid == "cover":
            return [data, s], self.launcher(chosen, launch, (data, None, None, s), n)
        a = self.engine.allocate(8 * launch.threads)
        return [a, data, s], self.launcher(chosen, launch, (a, data, None, s), n)

    def _mix_factor(self, kind: str, m: float) -> Any:
        """s: the factor, in every lane of a pack."""
        return encoded(np, kind, np.full(TYPES[kind][1], m))

    def _check_mix(self, chosen: Chosen, kind: str, count: int, what: str) -> None:
        """A small launch with few trips, in the device's own rounding."""
        form, engine, launch = chosen.form, self.engine, Launch(CHECK_BLOCKS, chosen.block)
        tiles = CHECK_BLOCKS if form.grid == "cover" else 2 * CHECK_BLOCKS + 1
        dtype, count = item_type(np, kind), mix.checked_count(form, count)
        x = np.random.default_rng(count).uniform(0.5, 1.0, tiles * chosen.block * form.items).astype(dtype)
        data, s = engine.upload(x), engine.upload(self._mix_factor(kind, fma.CHECKED))
        memory, once = self._mix_launch(chosen, launch, data, s, len(x))
        once(count)
        want = mix.expected(np, form, x, fma.CHECKED, count, launch.grid, launch.block)
        got = engine.download(memory[0].ptr, want.size * dtype.itemsize)[0].view(dtype)
        compare(what, got.reshape(want.shape), want, EXACTLY)


def trips(point: Point, form: CudaForm) -> int:
    """`count` that makes `fma` multiply-adds on each `block` of items; DeviceError where none does."""
    wanted, items = point.sizes["fma"], point.sizes["block"]
    count, rest = divmod(2 * wanted * form.items, items * form.flops)
    if rest or not 1 <= count <= MOST_TRIPS:
        raise DeviceError(f"{form.variant} cannot do {wanted} multiply-adds on {items} items")
    return count


def compare(what: str, got: Any, want: Any, relative: float) -> None:
    """VerificationError unless `got` equals `want` within `relative`; integers and 0 exactly."""
    if not np.allclose(got, want, rtol=relative, atol=0):
        raise VerificationError(f"the CUDA {what} differs from its reference; it is not timed")
