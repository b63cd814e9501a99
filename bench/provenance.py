"""Where a result comes from: commit, source hash, versions, command and time; never a host, user or path."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.checkout import CHECKOUT
from bench.profile.records import TOOL_VERSION

PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "pyarrow", "threadpoolctl", "psutil")
"""Packages that take part in measuring or deriving; their versions are recorded."""


def provenance(argv: Sequence[str], checkout: Path = CHECKOUT) -> dict[str, Any]:
    """All that tells where a result comes from, as JSON values.

    commit: seven hex digits, "-dirty" appended when files beside results/ were changed, "" without git
    label:  the commit, or "src" and seven digits of the source hash: what a result folder ends in
    """
    source = source_hash(checkout)
    known = commit(checkout)
    return {
        "tool": "empirical-roofline",
        "tool_version": TOOL_VERSION,
        "commit": known,
        "source_hash": source,
        "label": known or f"src{source[:7]}",
        "command": command(argv),
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "packages": versions(PACKAGES),
    }


def source_hash(checkout: Path = CHECKOUT) -> str:
    """Twelve hex digits over every Python file of bench and kernels, names included."""
    digest = hashlib.sha256()
    for path in sorted(p for part in ("bench", "kernels") for p in (checkout / part).rglob("*.py")):
        digest.update(path.relative_to(checkout).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def commit(checkout: Path = CHECKOUT) -> str:
    """Short commit of the checkout, with -dirty when it does not say it all; "" without git.

    Changed tracked files count, except results; of the untracked ones only what Python could
    import does. A checkout unpacked inside another repository has no commit of its own.
    """
    top = _git(checkout, "rev-parse", "--show-toplevel")
    head = _git(checkout, "rev-parse", "--short=7", "HEAD")
    if not top or not head or Path(top).resolve() != checkout.resolve():
        return ""
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)results")
    added = _git(checkout, "ls-files", "--others", "--exclude-standard", "--", "bench", "kernels")
    return head + ("-dirty" if changed or added else "")


def _git(checkout: Path, *words: str) -> str:
    """What git prints, "" when git or the repository is missing or it is not ours to read."""
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *words], capture_output=True, text=True, timeout=20, env=env
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


NODE = re.compile(r"[^\s=@]+@[^\s@]+")
"""Where another node is, and the word that it lets in."""


def command(argv: Sequence[str]) -> str:
    """The command line as it would be typed, every path reduced to its last name, another node to PEER."""
    words = [NODE.sub("PEER", _without_folders(word)) for word in argv[1:]]
    return " ".join(["python -m bench", *(f"'{w}'" if re.search(r"\s", w) else w for w in words)])


def _without_folders(word: str) -> str:
    """--out=/a/b/c becomes --out=c and sim:/a/b.yaml becomes sim:b.yaml."""
    bare = word.rstrip("/\\") or word
    first = re.search(r"[/\\]", bare)
    if first is None:
        return bare
    option = re.match(r".*[=:,]", bare[: first.start()])
    return (option.group() if option else "") + re.split(r"[/\\]", bare)[-1]


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Installed version by package name, without importing any; absent ones are left out."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
