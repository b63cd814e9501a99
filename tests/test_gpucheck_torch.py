"""Products beside PyTorch's without either: turns, the verdict, what is said where PyTorch is not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.backends import open_backend
from bench.errors import DeviceError
from bench.gpucheck import by_torch
from bench.gpucheck.bed import Bed
from bench.gpucheck.check import FAILED, OK, SKIPPED
from bench.running.child import Died, Silent


class Theirs:
    """The process of PyTorch, which answers what a test says."""

    def __init__(self, reply: Callable[[], Mapping[str, Any]]) -> None:
        self.reply = reply
        self.asked: list[Mapping[str, Any]] = []
        self.ended = False

    def __call__(self, words: Any) -> Theirs:
        assert words[1:] == ("-m", "bench.gpucheck.by_torch")
        return self

    def ask(self, request: Mapping[str, Any], limit: float) -> Mapping[str, Any]:
        self.asked.append(request)
        return self.reply()

    def end(self, kill: bool) -> None:
        self.ended = kill


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    """A simulated GPU that passes for a real one: 2 ms a product."""
    made = Bed(open_backend("sim:gpu-large"))
    assert made.points
    monkeypatch.setattr(made.backend, "device", replace(made.backend.device, kind="cuda"))
    monkeypatch.setattr(Bed, "amount", lambda self, prepared, seconds: 10)
    monkeypatch.setattr(Bed, "fastest", lambda self, prepared, amount, n: 2e-3 * amount)
    return made


def theirs(monkeypatch: pytest.MonkeyPatch, reply: Callable[[], Mapping[str, Any]]) -> Theirs:
    made = Theirs(reply)
    monkeypatch.setattr(by_torch, "Child", made)
    return made


@pytest.mark.parametrize(("seconds", "status"), [(1.97e-3, OK), (1.95e-3, FAILED), (3e-3, OK)])
def test_ours_may_be_two_per_cent_slower(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, seconds: float, status: str
) -> None:
    other = theirs(monkeypatch, lambda: {"seconds": seconds})
    found = list(by_torch.against_torch(bed))
    assert [c.name for c in found] == ["fp16>fp32 library / PyTorch's", "bf16>fp32 library / PyTorch's"]
    assert {c.status for c in found} == {status} and found[0].value == f"{seconds / 2e-3:.4f} of its rate"
    assert [a["item"] for a in other.asked] == ["fp16"] * 6 + ["bf16"] * 6, "once to import, then five pairs"
    assert other.ended and {a["edge"] for a in other.asked} == {8192}


def test_the_best_of_our_libraries_counts(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs(monkeypatch, lambda: {"seconds": 1e-3})
    monkeypatch.setattr(bed.backend, "variants", lambda *words: ("slow", "absent", "fast"))
    prepare = bed.backend.prepare

    def preparing(point: Any) -> Any:
        if point.variant == "absent":
            raise DeviceError("cublasLt cannot be loaded")
        return prepare(replace(point, variant="library"))

    turns = iter([1.0, 0.1] * 10)
    monkeypatch.setattr(bed.backend, "prepare", preparing)
    monkeypatch.setattr(Bed, "fastest", lambda self, prepared, amount, n: next(turns) * amount)
    assert next(iter(by_torch.against_torch(bed))).value == "0.0100 of its rate"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"absent": "PyTorch is not installed"}, "PyTorch is not installed"),
        (Silent("no answer within 30 s"), "PyTorch: no answer within 30 s"),
        (Died("the measuring process ended with signal 9"), "ended with signal 9"),
    ],
)
def test_without_pytorch_nothing_fails(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, reply: Any, said: str
) -> None:
    def answer() -> Mapping[str, Any]:
        if isinstance(reply, Exception):
            raise reply
        return dict(reply)

    other = theirs(monkeypatch, answer)
    found = list(by_torch.against_torch(bed))
    assert {c.status for c in found} == {SKIPPED} and said in found[0].value and other.ended


def test_no_answer_is_waited_for_beyond_the_end_of_the_stage(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    other = theirs(monkeypatch, lambda: {"seconds": 2e-3})
    monkeypatch.setattr(other, "ask", lambda asked, limit: limits.append(limit) or {"seconds": 2e-3})
    list(by_torch.against_torch(replace(bed, end=time.monotonic() + 7.0)))
    assert limits and max(limits) <= 7.0
    limits.clear()
    list(by_torch.against_torch(bed))
    assert set(limits) == {by_torch.LIMIT}


def test_pytorch_is_imported_ahead_and_asked_later(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys, time\n"
        "for line in sys.stdin:\n"
        "    print('{\"imported\": true}' if 'import' in line else '{\"absent\": \"asked\"}', flush=True)"
    )
    monkeypatch.setattr(by_torch, "WORDS", (sys.executable, "-c", code))
    other = by_torch.ahead()
    found = list(by_torch.against_torch(replace(bed, other=other)))
    assert {(c.status, c.value) for c in found} == {(SKIPPED, "asked")}
    assert other._process.returncode is not None, "it ends with the check"


# the other process


class Tensor:
    """Numbers of which only the type and the layout are looked at."""

    def __init__(self, values: Any, kind: str = "float32", turned: bool = False) -> None:
        self.values, self.kind, self.turned = values, kind, turned

    def __mul__(self, other: Any) -> Tensor:
        return Tensor(self.values * getattr(other, "values", other))

    def __add__(self, other: float) -> Tensor:
        return Tensor(self.values + other)

    def __sub__(self, other: float) -> Tensor:
        return Tensor(self.values - other)

    def to(self, kind: str) -> Tensor:
        assert (abs(self.values) >= 0.5).all() and (abs(self.values) <= 1).all() and (self.values < 0).any()
        return Tensor(self.values, kind)

    def t(self) -> Tensor:
        return Tensor(self.values.T, self.kind, True)


def fake_torch(there: bool = True) -> Any:
    """A product takes 4 ms, 3 ms with B by columns; a second one of the same batch is no different."""
    clock = SimpleNamespace(now=0.0, products=0)
    rng = np.random.default_rng(1)

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = clock.now

        def elapsed_time(self, last: Event) -> float:
            return float(last.at - self.at)

    def matmul(a: Tensor, b: Tensor, out: Tensor) -> None:
        assert a.kind == b.kind == out.kind and not a.turned and not out.turned
        clock.now += 3.0 if b.turned else 4.0
        clock.products += 1

    return SimpleNamespace(
        float16="float16",
        bfloat16="bfloat16",
        clock=clock,
        cuda=SimpleNamespace(is_available=lambda: there, Event=Event, synchronize=lambda: None),
        rand=lambda size, device: Tensor(rng.random(size)),
        randint=lambda low, high, size, device: Tensor(rng.integers(low, high, size)),
        empty=lambda size, device, dtype: Tensor(np.empty(size), dtype),
        matmul=matmul,
    )


def test_the_faster_layout_is_told_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, made = fake_torch(), []
    monkeypatch.setitem(sys.modules, "torch", torch)
    for item in ("fp16", "bf16"):
        assert by_torch.answered({"item": item, "edge": 16}, made) == {"seconds": pytest.approx(3e-3)}
    assert len(made) == 1 and torch.clock.products == 2 * (2 * (3 + 2) + 13 + 17)


def test_an_import_leaves_the_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch()
    torch.cuda.is_available = None
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert by_torch.answered({"import": True}, made := []) == {"imported": True} and made == []
    monkeypatch.setitem(sys.modules, "torch", None)
    assert by_torch.answered({"import": True}, []) == {"absent": "PyTorch is not installed"}


def test_what_is_said_where_pytorch_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert by_torch.answered({"item": "fp16", "edge": 16}, []) == {"absent": "PyTorch is not installed"}
    monkeypatch.setitem(sys.modules, "torch", fake_torch(there=False))
    assert "sees no GPU" in by_torch.answered({"item": "fp16", "edge": 16}, [])["absent"]
    broken = fake_torch()
    broken.matmul = lambda a, b, out: (_ for _ in ()).throw(RuntimeError("CUDA error: out of memory\nmore"))
    monkeypatch.setitem(sys.modules, "torch", broken)
    assert (
        by_torch.answered({"item": "fp16", "edge": 16}, [])["absent"] == "PyTorch: CUDA error: out of memory"
    )
