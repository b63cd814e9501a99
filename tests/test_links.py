"""Links of a host: scratch files, loopback, memory nodes, team start, and what goes wrong."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import links
from bench.backends.cpu import CpuBackend
from bench.errors import DeviceError, ResourceError, UsageError, VerificationError
from bench.links import scratch, storage
from bench.planning.plan import PRESETS, plan
from bench.planning.timebox import Ledger
from bench.profile.records import Point, Precision
from bench.running import opening
from kernels import KERNELS, link
from tests.counting import Array
from tests.fake_device import FAKE, FakeBackend
from tests.perf import links as race
from tests.sampling import sampled

FP64 = Precision.of("fp64")
KIB, MIB = 1 << 10, 1 << 20
TOP = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    return CpuBackend()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scratch folder of small files."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setenv(scratch.VARIABLE, str(place))
    monkeypatch.setattr(storage, "FILE_BYTES", 2 * MIB)
    yield place
    scratch.forget()


def a_link(kernel: str, variant: str, level: str, access: str, size: int, **other: Any) -> Point:
    return Point("link", kernel, variant, FP64, level, access, sizes={"bytes": size}, **other)


def file_point(variant: str = "buffered", access: str = "read", size: int = 64 * KIB) -> Point:
    return a_link("storage", variant, "page cache" if variant == "buffered" else "storage", access, size)


# kernels


@pytest.mark.parametrize(
    ("access", "reads", "writes"), [("read", 40, 0), ("write", 0, 40), ("send", 0, 40), ("exchange", 40, 40)]
)
def test_links_count_one_way(access: str, reads: int, writes: int) -> None:
    work = link.cost(8, link.crossing(access, 5), "network")
    assert (work.flops, work.reads["network"], work.writes["network"]) == (0.0, reads, writes)


def test_a_move_touches_every_item_once_at_each_end() -> None:
    from collections import Counter

    tally: Counter[str] = Counter()
    into, out = Array(np.arange(5.0), tally), Array(np.zeros(5), tally)
    link.move(out, into)
    assert dict(tally) == {"loads": 5, "stores": 5}
    np.testing.assert_array_equal(out.values, link.reference(np, np.zeros(5), np.arange(5.0)))
    with pytest.raises(KeyError, match="known: read, exchange, h2d, both, copy, write, send, d2h"):
        link.crossing("triad", 1)


# scratch files


def test_the_pattern_is_sound_and_every_block_another() -> None:
    blocks = [scratch.pattern(k) for k in range(5)]
    for block in blocks:
        assert block.nbytes == MIB and block.min() >= 1.0 and block.max() < 2.0
    assert len({float(block.sum()) for block in blocks}) == 5
    np.testing.assert_array_equal(blocks[3], scratch.pattern(3))


def test_a_scratch_file_has_no_name_and_holds_the_pattern(folder: Path) -> None:
    with scratch.Scratch(MIB + 4096, False, folder) as file:
        assert list(folder.iterdir()) == []
        memory = memoryview(bytearray(8192))
        file.read(memory, MIB - 4096)
        want = scratch.pattern(0).tobytes()[-4096:] + scratch.pattern(1).tobytes()[:4096]
        assert memory.tobytes() == want
        with pytest.raises(ResourceError, match="ends at byte 1052672"):
            file.read(memory, MIB + 4096)


def test_nothing_is_left_of_a_killed_process(folder: Path) -> None:
    code = (
        "from bench.links.scratch import Scratch\n"
        f"file = Scratch({MIB}, False)\nprint('made', flush=True)\nimport time\ntime.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=TOP, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"made\n"
    assert list(folder.iterdir()) == []
    child.kill()
    child.wait()
    child.stdout.close()


def refusing(number: int) -> Any:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, r"scratch cannot be written \(Permission denied\): name another.*ROOFLINE_SCRATCH"),
        (errno.EROFS, r"scratch cannot be written \(Read-only file system\)"),
        (errno.ENOENT, "there is no scratch folder scratch: make it, or name another"),
        (errno.EMFILE, "scratch folder scratch cannot be used"),
    ],
)
def test_a_folder_that_cannot_be_used_is_a_failed_point(
    backend: CpuBackend, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    monkeypatch.setattr("tempfile.mkstemp", refusing(number))
    with pytest.raises(ResourceError, match=words):
        scratch.Scratch(4096, False, folder)
    found = sampled(backend, file_point())
    assert found.status == "failed" and str(folder) not in found.reason
    monkeypatch.undo()
    assert sampled(backend, a_link("loopback", "ping", "network", "send", 64)).status == "ok"


def test_a_missing_folder_is_a_failed_point_and_no_skip(
    backend: CpuBackend, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(scratch.VARIABLE, str(folder / "gone"))
    for variant in storage.VARIANTS:
        found = sampled(backend, file_point(variant))
        assert (found.status, found.reason.partition(":")[0]) == ("failed", "there is no scratch folder gone")


def test_a_disk_that_fills_up_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("os.pwritev", refusing(errno.ENOSPC))
    with pytest.raises(ResourceError, match=r"is full \(No space left on device\): free some"):
        scratch.Scratch(4096, False, folder)
    assert list(folder.iterdir()) == [] and len(os.listdir("/proc/self/fd")) == before


def test_a_disk_is_never_filled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 8 * MIB})
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    scratch.room(folder, 2 * MIB)
    with pytest.raises(ResourceError, match="of 2 MB would take more than 25 % of the 8 MB free"):
        scratch.room(folder, 2 * MIB + 1)


def test_the_filesystem_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    lines = [
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw",
        "2 1 0:5 / /scratch rw shared:1 - xfs /dev/sdb rw",
        r"3 1 0:6 / /scratch/a\040b rw - tmpfs tmpfs rw",
    ]
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("\n".join(lines))
    kinds = {
        name: scratch.filesystem(Path(name), tmp_path) for name in ("/x", "/scratch/c", "/scratch/a b/d")
    }
    assert list(kinds.values()) == ["ext4", "xfs", "tmpfs"]
    assert scratch.filesystem(Path("/scratching"), tmp_path) == "ext4"
    assert scratch.filesystem(Path("/x"), tmp_path / "nowhere") == ""


def test_direct_access_that_is_refused_is_a_skip_with_its_reason(
    backend: CpuBackend, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "filesystem", lambda place: "tmpfs")
    found = sampled(backend, file_point("direct"))
    assert found.status == "skipped" and "lies in memory (tmpfs)" in found.reason
    assert "lies in memory" in links.unsupported(file_point("synced"), {})
    assert links.unsupported(file_point("buffered"), {}) == ""
    monkeypatch.setattr(scratch, "filesystem", lambda place: "overlay")
    opened = os.open

    def no_direct(path: str, flags: int, *rest: Any, **more: Any) -> int:
        return refusing(errno.EINVAL)() if flags & os.O_DIRECT else opened(path, flags, *rest, **more)

    monkeypatch.setattr("os.open", no_direct)
    found = sampled(backend, file_point("direct"))
    assert found.status == "skipped" and "(overlay) refuses direct access (Invalid argument)" in found.reason
    assert list(folder.iterdir()) == []


# storage


@pytest.mark.parametrize("variant", storage.VARIANTS)
@pytest.mark.parametrize("access", ["read", "write"])
def test_files_are_read_and_written(backend: CpuBackend, folder: Path, variant: str, access: str) -> None:
    point = file_point(variant, access)
    found = sampled(backend, point)
    if reason := scratch.no_direct(folder):
        assert variant == "buffered" or (found.status, found.reason) == ("skipped", reason)
        return
    assert found.status == "ok" and found.clock_source == "host"
    moved = found.facts["amount"] * 64 * KIB
    assert (found.bytes_read, found.bytes_written) == ((moved, 0) if access == "read" else (0, moved))
    if access == "read" and storage.from_storage() is not None:
        assert found.facts["from_storage"] == (0.0 if variant != "direct" else pytest.approx(1.0, abs=0.01))


def test_requests_walk_through_the_file_and_read_what_is_there(folder: Path) -> None:
    handle = storage.prepare(file_point(size=768 * KIB)).handle
    handle.measure(3, 1)  # the third starts again: 2 MiB hold two
    assert handle.memory.tobytes() == scratch.pattern(0).tobytes()[: 768 * KIB]
    handle.measure(1, 1)
    whole = b"".join(scratch.pattern(k).tobytes() for k in (0, 1))
    assert handle.memory.tobytes() == whole[768 * KIB : 1536 * KIB]


def test_writing_leaves_the_file_that_is_read_as_it_is(folder: Path) -> None:
    storage.prepare(file_point(access="write", size=MIB)).handle.measure(2, 2)
    handle = storage.prepare(file_point(size=MIB)).handle
    handle.measure(2, 1)
    assert handle.memory.tobytes() == scratch.pattern(1).tobytes()


def test_storage_that_changes_bytes_is_not_timed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = scratch.Scratch.read

    def wrong(self: scratch.Scratch, memory: memoryview, offset: int) -> None:
        read(self, memory, offset)
        memory[5] ^= 1

    handle = storage.prepare(file_point()).handle
    handle.check()
    monkeypatch.setattr(scratch.Scratch, "read", wrong)
    with pytest.raises(VerificationError, match="65536 byte written to storage came back changed"):
        handle.check()


@pytest.mark.parametrize(("variant", "size"), [("buffered", 1000), ("buffered", 512 * MIB), ("mapped", 4096)])
def test_requests_that_no_file_has(folder: Path, variant: str, size: int) -> None:
    with pytest.raises(DeviceError, match=r"multiples of 4096 byte|valid: direct, synced, buffered"):
        storage.prepare(file_point(variant, size=size))


# the plan

ON_DISK = replace(FAKE, facts={"scratch": {"filesystem": "ext4", "direct": "", "free_bytes": 1 << 40}})


def test_links_take_a_small_part_of_every_preset() -> None:
    for name, preset in PRESETS.items():
        drafted = plan(ON_DISK, FakeBackend().variants, name, families=list(links.FAMILIES))
        assert {p.point.family for p in drafted.points} == set(links.FAMILIES)
        seconds = Ledger().rounds(drafted.points, 1.0, preset.rounds)
        assert seconds <= 60 * preset.minutes / 6, f"{name}: {seconds:.1f} s"


def test_full_reaches_from_4_kib_and_1_kb_to_256_mib() -> None:
    drafted = plan(ON_DISK, FakeBackend().variants, "full", families=["link"])
    for kernel, first in (("storage", 4 * KIB), ("loopback", KIB)):
        found = sorted({p.point.sizes["bytes"] for p in drafted.points if p.point.kernel == kernel})
        assert found[0] == first and found[-1] == 256 * MIB
    ways = {(p.point.variant, p.point.access) for p in drafted.points if p.point.kernel == "storage"}
    assert ways == {(v, a) for v in ("direct", "buffered") for a in ("read", "write")} | {("synced", "write")}


def test_the_host_is_told_where_scratch_files_go(tmp_path: Path) -> None:
    device, runner = opening.open_device("cpu")
    found = opening.with_scratch(device, runner, tmp_path / "results" / "new")
    assert runner.environment[scratch.VARIABLE] == str(tmp_path)  # type: ignore[attr-defined]
    assert found.facts["scratch"]["filesystem"] == scratch.filesystem(tmp_path)
    assert str(tmp_path) not in json.dumps(dict(found.facts["scratch"]))
    simulated, other = opening.open_device("sim:small-cpu")
    assert opening.with_scratch(simulated, other, tmp_path) is simulated


def test_a_simulated_cpu_says_that_it_has_no_links() -> None:
    drafted = plan(replace(FAKE, kind="simulated"), FakeBackend().variants, "quick", families=["fma", "link"])
    assert "link: Fake CPU is a simulated CPU without links" in drafted.notes
    with pytest.raises(UsageError, match="nothing to measure"):
        plan(replace(FAKE, kind="simulated"), FakeBackend().variants, "quick", families=["link"])


def test_link_kernels_are_in_the_table_of_contents() -> None:
    assert {"storage", "loopback", "remote-read", "pipeline", "empty", "smallest"} <= set(KERNELS)
    pinned = Point("link", "copy-pinned", "", FP64, "host link", "h2d", sizes={"bytes": KIB})
    assert "GPUs only" in links.unsupported(pinned, {})


# the race with iperf3


def test_the_rate_of_iperf3_is_the_receivers() -> None:
    window = race.measured({"end": {"sum_received": {"bytes": 2000, "seconds": 0.5}, "sum_sent": {}}})
    assert window.rate == 4000.0
    with pytest.raises(DeviceError, match="iperf3 failed: unable to connect"):
        race.measured({"error": "unable to connect"})


def test_without_iperf3_the_race_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(race.shutil, "which", lambda name: None)
    assert race.main(["--pairs", "1"]) == DeviceError.exit_code
    assert "apt-get install iperf3" in capsys.readouterr().err


def test_a_scratch_folder_that_is_named_must_be_there(tmp_path: Path) -> None:
    """Storage of the folder above would be measured in its stead, under its name."""
    device, runner = opening.open_device("cpu")
    (tmp_path / "file").write_text("")
    for name, why in (("none", "does not exist"), ("file", "is a file")):
        with pytest.raises(ResourceError, match=why):
            opening.with_scratch(device, runner, tmp_path / name, asked=True)


def test_a_scratch_folder_that_is_named_must_be_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read-only or too small: nothing asked for could be measured, so the run ends before it begins."""
    device, runner = opening.open_device("cpu")

    def refused(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    assert opening.with_scratch(device, runner, tmp_path, asked=True).facts["scratch"]["filesystem"]
    with monkeypatch.context() as patched:
        patched.setattr(scratch.tempfile, "mkstemp", refused)
        with pytest.raises(ResourceError, match=r"cannot be written \(Read-only file system\): name another"):
            opening.with_scratch(device, runner, tmp_path, asked=True)
        found = opening.with_scratch(
            device, runner, tmp_path
        )  # nobody asked for it: told where it is missing
        assert "cannot be written" in found.facts["scratch"]["direct"]
    usage = shutil.disk_usage(tmp_path)._replace(free=64 * MIB)
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ResourceError, match="would take more than 25 % of the 67 MB free"):
        opening.with_scratch(device, runner, tmp_path, asked=True)
