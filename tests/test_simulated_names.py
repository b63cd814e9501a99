"""How a simulated device is named, described and read from YAML, and how a faulty file is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.backends import open_backend
from bench.backends.simulated import SimulatedBackend
from bench.backends.simulation.truth import catalogue, truth_of
from bench.device import Device
from bench.errors import DeviceError, FileError, UsageError
from bench.profile.encoding import decode, dumps
from tests.truths import backend, changed, point, random_truth, write_truth


def test_the_catalogue_is_complete_and_fictional() -> None:
    known = ["small-cpu", "big-cpu", "gpu-like", "gpu-large", "gpu-small", "gpu-mig", "gpu-pair", "gpu-quad"]
    assert list(catalogue()) == known
    for name in catalogue():
        device = open_backend(f"sim:{name}").device
        state = "simulated-mig" if name == "gpu-mig" else "simulated"
        assert (device.kind, device.state, device.slug) == ("simulated", state, f"sim-{name}")
        assert (device.id, device.name) == (f"sim:{name}", f"SIMULATED {name}")
        assert device.identity["parameters"]["seed"] == catalogue()[name].seed
        assert decode(Device, json.loads(dumps(device))).identity == device.identity


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(
        DeviceError, match="unknown simulated device 'tiny'; valid: small-cpu, big-cpu, gpu-like"
    ):
        open_backend("sim:tiny")


def test_a_file_of_ones_own_is_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_truth(tmp_path, random_truth(3), "My Box")
    monkeypatch.chdir(tmp_path)
    absolute, relative = (SimulatedBackend.named(str(p)) for p in (path, Path("My Box.yaml")))
    assert absolute.truth == relative.truth == truth_of(random_truth(3), "test")
    assert absolute.device.name == "SIMULATED My Box" and absolute.device.slug == "sim-my-box"
    assert relative.device.id == absolute.device.id == "sim:My Box.yaml"
    assert str(tmp_path) not in dumps(absolute.device)


def test_numbers_may_be_written_as_people_write_them(tmp_path: Path) -> None:
    values = random_truth(3)
    text = json.dumps(values).replace(f'"bytes": {values["memory"]["bytes"]}', '"bytes": 6.4E10')
    (tmp_path / "a.yaml").write_text(text.replace(f'"t0": {values["t0"]}', '"t0": 1e-6'))
    truth = SimulatedBackend.named(str(tmp_path / "a.yaml")).truth
    assert truth.memory.bytes == 64e9 and truth.t0 == 1e-6


def test_identity_changes_with_every_parameter_and_carries_the_device() -> None:
    values = random_truth(3)
    device = backend(values).device
    for change in ({"seed": 4}, {"p": 2.5}, {"defects": [{"kind": "throttling"}]}, {"naive": 0.2}):
        assert backend(changed(values, **change)).device.identity != device.identity
    recorded = decode(Device, json.loads(dumps(open_backend("sim:small-cpu+throttling,share=0.5").device)))
    again = SimulatedBackend.again(recorded)
    assert again.device == recorded
    original = open_backend("sim:small-cpu+throttling,share=0.5")
    what = point("fma", threads=2)
    first, second = (b.measure(b.prepare(what), 10**9, 50) for b in (again, original))
    assert first == second
    broken = decode(Device, {**json.loads(dumps(recorded)), "identity": {"device": "x"}})
    with pytest.raises(FileError, match=r"the record of sim:small-cpu.*device lacks: threads"):
        SimulatedBackend.again(broken)


def without(values: dict[str, Any], *path: str) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {k: v for k, v in values.items() if k != first}
    return {**values, first: without(values[first], *rest)}


def with_cache(**changes: Any) -> list[dict[str, Any]]:
    first, *others = random_truth(3)["caches"]
    return [{**first, **changes}, *others]


T = random_truth(3)
FAULTS = [
    (without(T, "p"), "device lacks: p"),
    (without(T, "memory", "triad"), "device.memory lacks: triad"),
    (changed(T, colour="red"), "device has unknown fields: colour"),
    (changed(T, memory={**T["memory"], "raed": 1.0}), "device.memory has unknown fields: raed"),
    (changed(T, p="four"), "device.p must be float, got 'four'"),
    (changed(T, threads=2.5), "device.threads must be int, got 2.5"),
    (changed(T, threads=0), "device.threads must be positive, got 0"),
    (changed(T, clock_hz=-1.0), "device.clock_hz must be positive, got -1.0"),
    (changed(T, t0=-1e-9), "device.t0 must not be negative, got -1e-09"),
    (changed(T, noise={"within": -0.1, "between": 0}), "device.noise.within must not be negative, got -0.1"),
    (changed(T, memory={**T["memory"], "copy": 0}), "device.memory.copy must be positive, got 0.0"),
    (
        changed(T, memory={**T["memory"], "write_allocate": "yes"}),
        "device.memory.write_allocate must be bool",
    ),
    (changed(T, pi={"fp64": "fast"}), "device.pi.fp64 must be a number, got 'fast'"),
    (changed(T, pi={"fp64": True}), "device.pi.fp64 must be a number, got True"),
    (changed(T, pi={}), "device.pi needs at least one precision of: fp64, fp32"),
    (changed(T, pi={"fp65": 1e9}), "device.pi has unknown precisions: fp65; known: fp64, fp32"),
    (changed(T, unsupported={"fp32": "no"}), "device.unsupported names a precision that device.pi has: fp32"),
    (changed(T, caches=with_cache(read=0)), "device.caches[0].read must be positive"),
    (changed(T, caches=with_cache(level="L2")), "device.caches names a level twice: L2, L2, L3, DRAM"),
    (changed(T, caches=with_cache(bytes=1e12)), "device.caches must be listed from the smallest level"),
    (changed(T, caches="none"), "device.caches must be an array"),
    (changed(T, p=0.5), "device.p must be at least 1"),
    (
        changed(T, one_thread={"pi": 1.5, "memory": 0.5}),
        "device.one_thread.pi is a share and must not exceed 1",
    ),
    (changed(T, workloads={"fft": 1.1}), "device.workloads.fft is a share and must not exceed 1"),
    (changed(T, workloads={"fftt": 0.5}), "device.workloads has unknown names: fftt; valid: default, "),
    (changed(T, unsupported={"fp12": "no"}), "device.unsupported has unknown names: fp12; valid: fp64, fp32"),
    (
        changed(T, gpu={"compute_capability": 90, "burst": 0.9}),
        "device.gpu.burst must be at least 1, got 0.9",
    ),
    (changed(T, gpu={"compute_capability": 90, "sustained": 1.1}), "device.gpu.sustained is a share"),
    (
        changed(T, pi={"fp16>fp32 matrix": 1e12}),
        "device.pi has unknown precisions: fp16>fp32 matrix; known: fp64",
    ),
    (changed(T, gpu={"compute_capability": 90}, pi={"tf32": 1e12}), "unknown precisions: tf32; known: fp64"),
    (changed(T, naive=0), "device.naive must be positive, got 0"),
    (changed(T, defects=[{"kind": "rust"}]), "unknown defect 'rust'; valid: throttling, stuck-clock"),
    (
        changed(T, defects=[{"kind": "throttling", "share": 2}]),
        "share is a share and must not exceed 1, got 2",
    ),
    (["threads"], "device must be an object, got list"),
]


@pytest.mark.parametrize(("values", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_a_faulty_file_is_refused_with_the_field(tmp_path: Path, values: Any, message: str) -> None:
    path = write_truth(tmp_path, values, "faulty")
    with pytest.raises(FileError, match=re.escape(message)) as refusal:
        open_backend(f"sim:{path}")
    assert str(refusal.value).startswith("faulty.yaml: ") and str(tmp_path) not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"pi: [1, 2", "broken.yaml is not valid YAML"),
        (b"p: 1\np: 2\n", "broken.yaml is not valid YAML: given twice: p"),
        (b"p: \xff\xfe\n", "broken.yaml is not UTF-8 text"),
        (b"p: .inf\n", "device lacks"),
        (b"", "device must be an object, got NoneType"),
        (b"1: 2\n", "device has unknown fields: 1"),
        (b"[" * 5000, "broken.yaml is nested too deeply"),
    ],
)
def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "broken.yaml").write_bytes(text)
    with pytest.raises(FileError, match=message):
        open_backend(f"sim:{tmp_path}/broken.yaml")


def test_a_sharp_corner_is_finite(tmp_path: Path) -> None:
    text = json.dumps(changed(T, p=12345.0)).replace("12345.0", ".inf")
    (tmp_path / "sharp.yaml").write_text(text)
    with pytest.raises(FileError, match=r"device.p must be finite, got inf \(1000 is a sharp corner\)"):
        open_backend(f"sim:{tmp_path}/sharp.yaml")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"simulated device none\.yaml: No such file"):
        open_backend(f"sim:{tmp_path}/none.yaml")


@pytest.mark.parametrize("form", ["small-cpu", "{folder}/box.yaml", "{folder}/c++/box.yml"])
def test_defects_are_asked_for_behind_the_name(tmp_path: Path, form: str) -> None:
    (tmp_path / "c++").mkdir()
    for name in ("c++/box.yml", "box.yaml"):
        write_truth(tmp_path, random_truth(3), "box").rename(tmp_path / name)
    text = form.format(folder=tmp_path)
    plain = SimulatedBackend.named(text)
    assert plain.defects == ()
    ill = SimulatedBackend.named(f"{text}+throttling,after=1,share=0.5+noisy-neighbour")
    assert [type(d).__name__ for d in ill.defects] == ["Throttling", "NoisyNeighbour"]
    assert ill.device.identity["defects"][0] == {"kind": "throttling", "after": 1.0, "share": 0.5}
    assert ill.device.slug == f"{plain.device.slug}-throttling-noisy-neighbour"
    assert ill.device.name == f"{plain.device.name} with throttling, noisy-neighbour"
    assert ill.device.id == f"{plain.device.id}+throttling,after=1,share=0.5+noisy-neighbour"


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        ("rust", "unknown defect 'rust'; valid: throttling, stuck-clock, memory-clock"),
        ("throttling,after", "'after' is not NAME=NUMBER"),
        ("throttling,after=soon", "'after=soon' is not NAME=NUMBER"),
        ("throttling,before=1", "throttling has unknown fields: before"),
        ("throttling,after=-1", "after must be positive, got -1.0"),
        ("throttling,share=0", "share must be positive, got 0.0"),
        ("noisy-neighbour,stretch=1", "stretch must exceed 1, got 1.0"),
        ("out-of-memory,limit_bytes=nan", "limit_bytes must be positive, got nan"),
    ],
)
def test_a_wrong_defect_is_refused(suffix: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        open_backend(f"sim:small-cpu+{suffix}")
