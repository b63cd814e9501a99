"""The result folder: nothing lost, nothing doubled, one writer, and words for what goes wrong."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import store
from bench.checkout import CHECKOUT
from bench.errors import FileError, ResourceError
from bench.profile.records import SCHEMA_VERSION, Point, Precision, Repetitions, Sample
from bench.store import Store, read_log, read_profile, write_profile
from tests.synthetic import synthetic_profile

HEADER = {"schema_version": SCHEMA_VERSION, "identity": {"device": "Fake"}, "simulated": False}
POINT = Point("stream", "read", "s3u4", Precision.of("fp64"), "DRAM", "read", sizes={"bytes": 64})
SAMPLE = Sample(POINT, 1, 2, 3, bytes_read=64.0, repetitions=Repetitions((0.0,), (0.5,), (1,), (0.99,)))


def folder_with(tmp_path: Path, rounds: int = 3) -> Path:
    folder = tmp_path / "run"
    with Store.create(folder, HEADER) as opened:
        opened.append_conditions(1, {"load": 0.5})
        for number in range(1, rounds + 1):
            opened.append(replace(SAMPLE, round=number))
        opened.append_note(text="done", not_measured=["gemm"])
    return folder


def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    log = read_log(folder_with(tmp_path))
    assert log.header == {**HEADER, "not_measured": ["gemm"]}
    assert log.samples == [replace(SAMPLE, round=n) for n in (1, 2, 3)]
    assert log.conditions == [{"round": 1, "values": {"load": 0.5}}]
    assert log.notes == [{"text": "done", "not_measured": ["gemm"]}]
    assert not list((tmp_path / "run").glob(".*")), "a draft was left behind"


def test_the_open_store_says_the_same_as_the_file(tmp_path: Path) -> None:
    with Store.open(folder_with(tmp_path)) as opened:
        log = read_log(opened.folder)
        assert opened.header == log.header and opened.samples == tuple(log.samples)
        assert opened.conditions == tuple(log.conditions) and opened.notes == tuple(log.notes)
        assert opened.holds(2, f"typical/{POINT.key}") and not opened.holds(4, f"typical/{POINT.key}")


def test_every_line_is_on_the_disk_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor))
    with Store.create(tmp_path / "real", HEADER) as opened:
        opened.append(SAMPLE)
        opened.append_note(text="x")
    assert len(synced) == 3
    with Store.create(tmp_path / "simulated", {**HEADER, "simulated": True}) as opened:
        before = len(synced)
        opened.append(SAMPLE)
    assert len(synced) == before, "a simulated sample can be computed again"


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_torn_last_line_is_left_out_and_cut_off_on_open(tmp_path: Path, cut: int) -> None:
    folder = folder_with(tmp_path)
    path = folder / "samples.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[2][:cut])
    assert len(read_log(folder).samples) == 3
    with Store.open(folder) as opened:
        assert path.read_bytes() == whole
        opened.append(replace(SAMPLE, round=4))
    assert [s.round for s in read_log(folder).samples] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "bad", [b"{", b"nonsense", b'{"record": "sample"}', b'{"record": "sampel"}', b"\xff", b"3"]
)
def test_a_corrupt_line_is_named_with_its_remedy(tmp_path: Path, bad: bytes) -> None:
    folder = folder_with(tmp_path)
    path = folder / "samples.jsonl"
    lines = path.read_bytes().splitlines()
    lines[2] = bad
    path.write_bytes(b"\n".join(lines) + b"\n")
    for read in (read_log, Store.open):
        with pytest.raises(FileError, match=r"samples\.jsonl, line 3 is corrupt .*: delete that line"):
            read(folder)


def test_a_file_without_its_header_cannot_be_read(tmp_path: Path) -> None:
    path = folder_with(tmp_path) / "samples.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[1:]))
    with pytest.raises(FileError, match=r"line 1 is corrupt .no header before it.: the run cannot be read"):
        read_log(path.parent)
    path.write_bytes(lines[0] + lines[0])
    with pytest.raises(FileError, match=r"line 2 is corrupt .a second header"):
        read_log(path.parent)
    path.write_bytes(lines[0][:20])
    with pytest.raises(FileError, match="ended before anything was recorded: delete the folder"):
        read_log(path.parent)


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    path = folder_with(tmp_path) / "samples.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"schema_version": 1', b'"schema_version": 9'))
    with pytest.raises(FileError, match="schema version 9, this tool reads version 1"):
        read_log(path.parent)


def test_a_sample_is_never_doubled(tmp_path: Path) -> None:
    with Store.open(folder_with(tmp_path)) as opened:
        with pytest.raises(ValueError, match="already measured in round 2"):
            opened.append(replace(SAMPLE, round=2))
        opened.append(replace(SAMPLE, round=2, regime="burst"))
    assert len(read_log(tmp_path / "run").samples) == 4


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", HEADER):
        with pytest.raises(ResourceError, match="in use by another run"):
            Store.open(tmp_path / "run")
        code = "import sys, pathlib, bench.store as s; s.Store.open(pathlib.Path(sys.argv[1]))"
        command = [sys.executable, "-c", code, str(tmp_path / "run")]
        other = subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT)
        assert other.returncode == 1 and "is in use by another run" in other.stderr
    Store.open(tmp_path / "run").close()


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    before = (folder / "samples.jsonl").read_bytes()
    with pytest.raises(ResourceError, match=r"already holds samples.jsonl: continue it with --resume"):
        Store.create(folder, HEADER)
    assert (folder / "samples.jsonl").read_bytes() == before
    assert [p.name for p in folder.iterdir()] == ["samples.jsonl"]


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"holds no samples\.jsonl: nothing to resume"):
        Store.open(tmp_path)
    with pytest.raises(FileError, match="cannot read"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, ("read-only; choose another folder with --results", "read-only; copy the folder")),
        (errno.EACCES, ("not permitted; choose another", "not permitted; change its rights, or copy")),
        (errno.ENOSPC, ("disk is full; free space", "disk is full; free space and try again")),
        (errno.EIO, ("Input/output error; choose another folder",) * 2),
    ],
)
def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: tuple[str, str]
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ResourceError, match=words[0]):
        Store.create(tmp_path / "run", HEADER)
    monkeypatch.undo()
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ResourceError, match=words[1]):
        write_profile(tmp_path, synthetic_profile())
    assert not list(tmp_path.glob(".profile*")), "a draft was left behind"


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(ResourceError, match="a file is in the way"):
        Store.create(tmp_path / "results" / "run", HEADER)


def test_a_disk_that_fills_up_leaves_a_readable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_with(tmp_path)
    real = os.write
    with Store.open(folder) as opened:
        monkeypatch.setattr(os, "write", lambda descriptor, line: real(descriptor, line[:50]))
        with pytest.raises(ResourceError, match="disk is full"):
            opened.append(replace(SAMPLE, round=4))
        monkeypatch.undo()
        assert (folder / "samples.jsonl").read_bytes().endswith(b"\n")
        opened.append(replace(SAMPLE, round=4))
    assert [s.round for s in read_log(folder).samples] == [1, 2, 3, 4]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_really_full_disk(tmp_path: Path) -> None:
    opened = Store.open(folder_with(tmp_path))
    os.dup2(os.open("/dev/full", os.O_WRONLY), opened._descriptor)
    with opened, pytest.raises(ResourceError, match="disk is full"):
        opened.append(replace(SAMPLE, round=4))


def test_file_systems_without_locks_or_links_are_used_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(store.fcntl, "flock", unsupported)
    monkeypatch.setattr(os, "link", unsupported)
    assert len(read_log(folder_with(tmp_path)).samples) == 3
    with pytest.raises(ResourceError, match="already holds"):
        Store.create(tmp_path / "run", HEADER)


def test_a_profile_is_replaced_as_a_whole(tmp_path: Path) -> None:
    profile = synthetic_profile()
    assert write_profile(tmp_path, profile) == tmp_path / "profile.json"
    assert read_profile(tmp_path) == profile == read_profile(tmp_path / "profile.json")
    write_profile(tmp_path, replace(profile, not_measured=("all",)))
    assert read_profile(tmp_path).not_measured == ("all",)
    assert [p.name for p in tmp_path.iterdir()] == ["profile.json"]


def test_profiles_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read .*: No such file.*bench fit"):
        read_profile(tmp_path)
    path = write_profile(tmp_path, synthetic_profile())
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "schema_version": 2}))
    with pytest.raises(FileError, match="schema version 2, this tool reads version 1"):
        read_profile(path)
    path.write_text(json.dumps({**values, "ceiling": []}))
    with pytest.raises(FileError, match=r"is not a profile \(profile has unknown fields: ceiling\)"):
        read_profile(path)
    for text in ("[" * 100_000, "[]", "{", '{"schema_version": 1}', '{"schema_version": NaN}'):
        path.write_text(text)
        with pytest.raises(FileError, match=r"is not a profile .*: remake it"):
            read_profile(path)


def test_a_profile_is_not_read_from_what_may_never_end() -> None:
    with pytest.raises(FileError, match="/dev/zero is neither a folder nor a file"):
        read_profile(Path("/dev/zero"))
