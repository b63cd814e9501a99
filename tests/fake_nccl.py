"""A stand-in for CuPy's binding of NCCL: calls of a group are one operation, on the memory of the fake GPUs.

It asserts that every member took part once, with the same sizes and buffers on its own GPU; an operation
that would hang a real one is an assertion here.
"""

from __future__ import annotations

import types

import numpy as np

from kernels import collective
from tests.fake_cupy import view
from tests.fake_gpu import FakeGpu

ITEM = 4


class NcclError(RuntimeError):
    """As CuPy's."""


class Nccl:
    """The module."""

    NCCL_FLOAT32, NCCL_SUM = 7, 0
    available = True

    def __init__(self, gpu: FakeGpu, spoil: str = "") -> None:
        self.gpu, self.spoil = gpu, spoil
        self.calls: list[tuple[str, int, tuple[int, ...]]] = []
        self.depth = self.operations = 0
        self.groups = 0
        self.NcclCommunicator = types.SimpleNamespace(initAll=self._init)

    def get_version(self) -> int:
        return 22703

    def _init(self, devices: list[int]) -> list[Member]:
        assert devices == list(range(len(devices))) and len(devices) <= self.gpu.devices
        self.gpu.call("ncclCommInitAll")
        self.groups += 1
        return [Member(self, rank, len(devices)) for rank in devices]

    def groupStart(self) -> None:
        assert not self.depth and not self.calls
        self.depth = 1

    def groupEnd(self) -> None:
        assert self.depth
        self.depth = 0
        calls, self.calls = self.calls, []
        self._operate(calls)

    def _operate(self, calls: list[tuple[str, int, tuple[int, ...]]]) -> None:
        (size,) = {args[-1] for _, _, args in calls}
        assert {rank for _, rank, _ in calls} == set(range(size)), "a member is missing: the others wait"
        self.operations += 1
        self.gpu.call("ncclGroup")
        if calls[0][0] in ("send", "recv"):
            moved = _all_to_all(calls, size)
        else:
            assert len(calls) == size and len({name for name, _, _ in calls}) == 1
            moved = self._combined(calls, size)
        for _, rank, args in calls[:: len(calls) // size]:
            self.gpu.current, before = rank, self.gpu.current
            self.gpu.queue(1e-5 + moved / 50e9, "nccl", stream=args[-2])
            self.gpu.current = before

    def _combined(self, calls: list[tuple[str, int, tuple[int, ...]]], size: int) -> int:
        name, _, (_, _, count, *_) = calls[0]
        length = {"all-gather": count * size, "reduce-scatter": count * size}.get(name, count)
        sent = {"all-gather": count}.get(name, length)
        arrays = []
        for _, rank, args in sorted(calls, key=lambda call: call[1]):
            assert args[2] == count and self.gpu.on_device(args[0]) == rank == self.gpu.on_device(args[1])
            found = np.zeros(length, np.float32)
            found[:sent] = view(args[0], sent * ITEM).view(np.float32)
            arrays.append(found.tolist())
        results = collective.collective(name, arrays)
        for rank, (_, _, args) in enumerate(sorted(calls, key=lambda call: call[1])):
            out = np.asarray(results[rank], np.float32)
            if self.spoil == name and rank == size - 1:
                out = np.roll(out, 1)
            assert self.gpu.holds(args[1], out.nbytes), "the result has no room"
            view(args[1], out.nbytes).view(np.float32)[:] = out
        return length * ITEM


def _all_to_all(calls: list[tuple[str, int, tuple[int, ...]]], size: int) -> int:
    sends = {(rank, args[2]): args for name, rank, args in calls if name == "send"}
    receipts = {(args[2], rank): args for name, rank, args in calls if name == "recv"}
    assert {*sends} == {*receipts} and len(sends) == size * size, "a send without its receipt"
    data = {key: view(args[0], args[1] * ITEM).copy() for key, args in sends.items()}
    for key, args in receipts.items():
        view(args[0], args[1] * ITEM)[:] = data[key]
    return sum(d.nbytes for d in data.values()) // size


class Member:
    """As cupy.cuda.nccl.NcclCommunicator."""

    def __init__(self, nccl: Nccl, rank: int, size: int) -> None:
        self._nccl, self._rank, self._size = nccl, rank, size

    def _call(self, name: str, stream: int, *args: int) -> None:
        nccl = self._nccl
        assert nccl.depth, "a call outside a group waits for the other members, which come later"
        assert nccl.gpu.current == self._rank, "another GPU is current"
        assert all(type(a) is int for a in args), args
        nccl.calls.append((name, self._rank, (*args, stream, self._size)))

    def allReduce(self, sent: int, got: int, count: int, kind: int, op: int, stream: int) -> None:
        assert (kind, op) == (7, 0)
        self._call("all-reduce", stream, sent, got, count)

    def allGather(self, sent: int, got: int, count: int, kind: int, stream: int) -> None:
        self._call("all-gather", stream, sent, got, count)

    def reduceScatter(self, sent: int, got: int, count: int, kind: int, op: int, stream: int) -> None:
        assert (kind, op) == (7, 0)
        self._call("reduce-scatter", stream, sent, got, count)

    def broadcast(self, sent: int, got: int, count: int, kind: int, root: int, stream: int) -> None:
        assert root == 0
        self._call("broadcast", stream, sent, got, count)

    def send(self, sent: int, count: int, kind: int, peer: int, stream: int) -> None:
        self._call("send", stream, sent, count, peer)

    def recv(self, got: int, count: int, kind: int, peer: int, stream: int) -> None:
        self._call("recv", stream, got, count, peer)
