"""Reads a file that somebody hands in, whatever it is: its text, or one sentence why it has none."""

from __future__ import annotations

import stat
from pathlib import Path

from bench.errors import FileError
from bench.report.units import capacity

LARGEST = 32 * 1024**2
"""Bytes of the largest file that is read: a sweep of ten thousand rows takes one."""

PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
"""First bytes of packed files."""

WIDE = (b"\xff\xfe", b"\xfe\xff")
"""First bytes of UTF-16, which some shells write."""


def text_of(path: Path) -> str:
    """The text of a file in UTF-8, with or without its mark; FileError for whatever is no such text."""
    content = _bytes(path)
    if not content.strip():
        raise FileError(f"{path} is empty: the tool that should have written it failed, run it again")
    if content.startswith(WIDE):
        raise FileError(f"{path} is text in UTF-16: save it as UTF-8")
    for mark, name in PACKED.items():
        if content.startswith(mark):
            raise FileError(f"{path} is packed with {name}: unpack it and give the file inside")
    if b"\0" in content:
        raise FileError(f"{path} is a binary file: give the text that the tool printed")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None


def _bytes(path: Path) -> bytes:
    try:
        known = path.stat()
        if not stat.S_ISREG(known.st_mode):
            raise FileError(f"{path} is neither a file nor a folder of results: give one of these")
        if known.st_size > LARGEST:
            raise FileError(
                f"{path} has {capacity(known.st_size)}, more than the {capacity(LARGEST)} that are read: "
                "cut it down to the sweep"
            )
        with path.open("rb") as file:
            return file.read(LARGEST)
    except OSError as error:
        raise FileError(f"cannot read {path} ({error.strerror}): check its path and its rights") from None
