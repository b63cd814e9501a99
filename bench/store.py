"""The result folder: samples.jsonl, appended and never changed, and profile.json, replaced as a whole."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bench.errors import FileError, ResourceError
from bench.profile import facts
from bench.profile.encoding import FormatError, decode, dumps, loads, plain
from bench.profile.records import SCHEMA_VERSION, Profile, Sample
from bench.profile.sanity import check_profile, check_sample
from bench.whole_files import replacing

SAMPLES, PROFILE = "samples.jsonl", "profile.json"

REMEDIES = {
    errno.EROFS: "it is read-only; choose another folder with --results",
    errno.EACCES: "writing is not permitted; choose another folder with --results",
    errno.EPERM: "writing is not permitted; choose another folder with --results",
    errno.ENOSPC: "the disk is full; free space and go on with --resume, or choose another with --results",
    errno.EDQUOT: "the quota is used up; free space and go on with --resume, or choose another --results",
    errno.ENOTDIR: "a file is in the way; choose another folder with --results",
}
"""By the number of the error, for a new run."""

STANDING = {
    errno.EROFS: "it is read-only; copy the folder to where you may write, and go on there",
    errno.EACCES: "writing is not permitted; change its rights, or copy the folder and go on there",
    errno.EPERM: "writing is not permitted; change its rights, or copy the folder and go on there",
    errno.ENOSPC: "the disk is full; free space and try again, with --resume if the run was not over",
    errno.EDQUOT: "the quota is used up; free space and try again, with --resume if the run was not over",
    errno.EISDIR: "a folder is in the way; remove it and try again",
}
"""The same for a folder that is there already."""


class Taken(ResourceError):
    """The folder holds a run already: another that began in the same second, or an earlier one."""


@contextmanager
def _writing(path: Path, remedies: Mapping[int, str] = STANDING) -> Iterator[None]:
    """Turn what the file system refuses into one sentence with its remedy."""
    try:
        yield
    except FileExistsError:
        raise Taken(f"{path.parent} already holds {path.name}: continue it with --resume") from None
    except OSError as error:
        why = remedies.get(error.errno or 0, f"{error.strerror}; choose another folder with --results")
        raise ResourceError(f"cannot write {path}: {why}") from None


@dataclass
class Log:
    """What samples.jsonl holds; `length` is where its last complete line ends (byte)."""

    header: dict[str, Any] = field(default_factory=dict)
    conditions: list[dict[str, Any]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    length: int = 0

    def take(self, record: Mapping[str, Any]) -> None:
        """Sort one parsed line in; FormatError when it is none of the known records."""
        values = {k: v for k, v in record.items() if k != "record"}
        kind = record.get("record")
        if (kind == "header") == bool(self.header):
            raise FormatError("a second header" if self.header else "no header before it")
        facts.check(str(kind), values, facts.RECORDS.get(str(kind), {}))
        if kind == "header":
            self.header = values
        elif kind == "conditions":
            self.conditions.append(values)
        elif kind == "sample":
            sample = decode(Sample, values, "sample")
            check_sample(sample)
            self.samples.append(sample)
        elif kind == "note":
            self.note(values)
        else:
            raise FormatError(f"unknown record {kind!r}")

    def note(self, values: Mapping[str, Any]) -> None:
        """Keep a note; what was not measured, and a cross-check, become part of the header."""
        self.notes.append(dict(values))
        for name in ("not_measured", "cross_check"):
            if name in values:
                self.header[name] = values[name]


def read_log(folder: Path) -> Log:
    """Everything in the folder's samples.jsonl; a torn last line is left out, never an error.

    FileError when there is none, when it is of another schema version, or when a complete
    line is corrupt (it names the line and the remedy).
    """
    path = folder / SAMPLES
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}; give the folder of a run") from None
    log = Log(length=content.rfind(b"\n") + 1)
    for number, line in enumerate(content[: log.length].split(b"\n")[:-1], 1):
        try:
            record = loads(line.decode())
            if not isinstance(record, dict):
                raise FormatError("not an object")
            _check_version(record, path)
            log.take(record)
        except (FormatError, UnicodeDecodeError) as error:
            remedy = "the run cannot be read without it" if number == 1 else "delete that line and try again"
            raise FileError(f"{path}, line {number} is corrupt ({error}): {remedy}") from None
    if not log.header:
        raise FileError(f"{path} ended before anything was recorded: delete the folder and start a new run")
    return log


def _check_version(record: Mapping[str, Any], path: Path) -> None:
    version = record.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise FileError(
            f"{path} has schema version {version!r}, this tool reads version {SCHEMA_VERSION}: "
            "use the tool version that wrote it"
        )


def key_of(sample: Sample) -> str:
    """The key of the Planned that a sample was measured for."""
    return f"{sample.regime}/{sample.point.key}"


class Store:
    """The one writer of a result folder; the lock on samples.jsonl goes when the process does."""

    def __init__(self, folder: Path, descriptor: int, log: Log) -> None:
        self.folder = folder
        self._descriptor = descriptor
        self._log = log
        self._seen = {self._identity(sample) for sample in log.samples}
        self._simulated = bool(log.header.get("simulated"))

    @classmethod
    def create(cls, folder: Path, header: Mapping[str, Any]) -> Store:
        """A new folder whose file appears complete with its header, or not at all; ResourceError."""
        path, draft = folder / SAMPLES, folder / f".{SAMPLES}.{os.getpid()}"
        record = plain({"record": "header", **header})
        with _writing(path, REMEDIES):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        log = Log()
        store = cls(folder, descriptor, log)
        try:
            _lock(descriptor, folder)
            store._write(record)
            log.take(record)
            store._simulated = bool(record.get("simulated"))
            with _writing(path, REMEDIES):
                _publish(draft, path)
        except BaseException:
            store.close()
            raise
        finally:
            draft.unlink(missing_ok=True)
        return store

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Go on with an existing folder: lock it, cut a torn last line off; FileError, ResourceError."""
        path = folder / SAMPLES
        if not path.exists():
            raise FileError(
                f"{folder} holds no {SAMPLES}: nothing to resume, start a new run without --resume"
            )
        with _writing(path):
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            _lock(descriptor, folder)
            log = read_log(folder)
            with _writing(path):
                os.ftruncate(descriptor, log.length)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(folder, descriptor, log)

    def close(self) -> None:
        """Let go of the file and its lock."""
        with suppress(OSError):
            os.close(self._descriptor)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def header(self) -> Mapping[str, Any]:
        """The first line, without its "record"."""
        return self._log.header

    @property
    def conditions(self) -> tuple[Mapping[str, Any], ...]:
        """The device's state before each round, each with its "round"."""
        return tuple(self._log.conditions)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Every sample in the order of measuring."""
        return tuple(self._log.samples)

    @property
    def notes(self) -> tuple[Mapping[str, Any], ...]:
        """What the run decided: winners, ends of rounds, what was left out."""
        return tuple(self._log.notes)

    def holds(self, round: int, key: str, visit: int = 0) -> bool:
        """Whether visit number `visit` of `key` (regime/point key) was made in `round`."""
        return (round, key, visit) in self._seen

    def append(self, sample: Sample) -> None:
        """Record a sample for good; ValueError when its round already has it."""
        identity = self._identity(sample)
        if identity in self._seen:
            raise ValueError(f"{identity[1]} is already measured in round {identity[0]}")
        self._write({"record": "sample"} | {f.name: getattr(sample, f.name) for f in fields(sample)})
        self._seen.add(identity)
        self._log.samples.append(sample)

    def append_conditions(self, round: int, values: Mapping[str, Any]) -> None:
        """Record the state of the device before a round."""
        record = {"round": round, "values": plain(values)}
        self._write({"record": "conditions", **record})
        self._log.conditions.append(record)

    def append_note(self, **values: Any) -> None:
        """Record a decision of the run; `text` is what a reader should see."""
        self._write({"record": "note", **plain(values)})
        self._log.note(plain(values))

    @staticmethod
    def _identity(sample: Sample) -> tuple[int, str, int]:
        return sample.round, key_of(sample), sample.visit

    def _write(self, record: Mapping[str, Any]) -> None:
        """One line, whole or not at all: what a full disk cut short is taken back."""
        line = dumps(record).encode() + b"\n"
        with _writing(self.folder / SAMPLES):
            try:
                written = os.write(self._descriptor, line)
                if written < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if not self._simulated:  # what can be computed again needs no disk to wait for
                    os.fsync(self._descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, self._log.length)
                raise
        self._log.length += len(line)


def _lock(descriptor: int, folder: Path) -> None:
    """Take the folder for this process; file systems without locks are used without one."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ResourceError(
            f"{folder} is in use by another run: wait for it or choose another folder"
        ) from None
    except OSError:
        pass


def _publish(draft: Path, path: Path) -> None:
    """Give the draft its name unless that exists; renaming serves where hard links do not."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise FileExistsError(str(path)) from None
        os.rename(draft, path)


def write_profile(folder: Path, profile: Profile) -> Path:
    """Replace the folder's profile.json as a whole; ResourceError when it cannot be written."""
    path = folder / PROFILE
    text = dumps(profile, indent=1) + "\n"
    with _writing(path), replacing(path) as beside, open(beside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return path


def read_profile(path: Path) -> Profile:
    """The profile at `path`, folder or file; FileError when missing, corrupt or of another version."""
    file = path / PROFILE if path.is_dir() else path
    if file.exists() and not file.is_file():
        raise FileError(f"{file} is neither a folder nor a file, and may never end: give a result folder")
    try:
        values = loads(file.read_text(encoding="utf-8"))
        if isinstance(values, dict):
            _check_version(values, file)
        profile = decode(Profile, values, "profile")
        check_profile(profile)
        return profile
    except OSError as error:
        remedy = "remake it with `python -m bench fit`" if path.is_dir() else "give a result folder"
        raise FileError(f"cannot read {file}: {error.strerror}; {remedy}") from None
    except (FormatError, UnicodeDecodeError) as error:
        raise FileError(f"{file} is not a profile ({error}): remake it with `python -m bench fit`") from None
