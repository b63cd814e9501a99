"""How every failure ends: one sentence with cause and remedy, and a documented exit code."""

from __future__ import annotations

import errno

from bench.errors import BenchError, DeviceError, FileError, ResourceError
from bench.profile.encoding import FormatError

INTERNAL = 1
INTERRUPTED = 130
BROKEN_PIPE = 141

EXIT_CODES = {
    0: "done",
    INTERNAL: "a fault of the suite itself",
    2: "a flag, name or combination that is not valid",
    3: "a device that is unknown, absent or unusable, or a missing package or compiler",
    4: "a file that is missing, corrupt, of another version or of another device",
    5: "a folder, disk or memory that cannot hold what was asked, or a folder in use",
    6: "a kernel whose result differs from its reference",
    7: "with --strict: a ceiling that did not converge or carries no verdict",
    8: "audit: machine code that departs from what its kernel declares",
    9: "with gpu-check: a check that failed on this GPU machine",
    INTERRUPTED: "interrupted; what was measured is kept and can be resumed",
    BROKEN_PIPE: "the reader of the output went away",
}

FULL = {errno.ENOSPC, errno.EDQUOT}
FORBIDDEN = {errno.EACCES, errno.EPERM}
NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}

ELSEWHERE = "choose another folder with --results, --output or --plot"


def outcome(error: BaseException) -> tuple[int, str]:
    """The exit code and the one sentence for any exception."""
    if isinstance(error, BenchError):
        return error.exit_code, str(error)
    if isinstance(error, FormatError):
        return FileError.exit_code, f"{error}; the file is corrupt or of another version of the suite"
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, " ".join(
            ("interrupted;", *map(str, error.args)) if error.args else ("interrupted",)
        )
    if isinstance(error, MemoryError):
        return ResourceError.exit_code, _memory(error)
    if isinstance(error, ImportError) and not _ours(error):
        return DeviceError.exit_code, _import(error)
    if isinstance(error, OSError):
        return _system(error)
    return INTERNAL, (
        f"internal error: {type(error).__name__}: {error}; please report it with the command line; "
        "--debug shows the traceback"
    )


def told(error: BaseException) -> tuple[int, str]:
    """The exit code and the line to print for any exception."""
    code, sentence = outcome(error)
    return code, sentence if code == INTERRUPTED else f"Error: {sentence}"


def _memory(error: MemoryError) -> str:
    cause = f" ({error})" if str(error) else ""
    return f"not enough memory{cause}: free some, or ask for fewer threads with --threads"


def _ours(error: ImportError) -> bool:
    return (error.name or "").split(".")[0] in ("bench", "kernels")


def _import(error: ImportError) -> str:
    package = (error.name or "").split(".")[0]
    if isinstance(error, ModuleNotFoundError) and package:
        remedy = "run `make setup` and use .venv/bin/python, or install it"
        return f"the Python package {package!r} is missing: {remedy}"
    return f"a Python package cannot be imported ({error}): run `make setup` to install one that can"


def _system(error: OSError) -> tuple[int, str]:
    place = str(error.filename) if error.filename is not None else "the output"
    cause = error.strerror or str(error) or type(error).__name__
    if error.errno in FULL:
        return ResourceError.exit_code, f"no space left for {place}: free some, or {ELSEWHERE}"
    if error.errno == errno.EROFS:
        return ResourceError.exit_code, f"{place} lies on a read-only file system: {ELSEWHERE}"
    if error.errno in FORBIDDEN:
        return ResourceError.exit_code, f"no permission for {place}: change its rights, or {ELSEWHERE}"
    if error.errno in NOT_THERE:
        return FileError.exit_code, f"{place}: {cause.lower()}; check the path"
    if error.errno == errno.ENOMEM:
        return ResourceError.exit_code, _memory(MemoryError(cause))
    return ResourceError.exit_code, f"{place}: {cause}; --debug shows where"
