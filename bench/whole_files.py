"""Files that readers find whole or not at all: written beside their place, then moved there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what shall stand at `path`: moved there if the block ends well, else removed.

    The unfinished file begins with a dot and does not end like `path`, so that no collector picks it up, and
    two processes never share one. Behind a link the file that it names is replaced, the link stays. OSError
    names `path`, as who named it knows of no other file.
    """
    target = path.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield beside
        os.replace(beside, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    """A whole file of UTF-8 text."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")
