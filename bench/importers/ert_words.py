"""What the Empirical Roofline Toolkit says of machine and configuration, in every form it writes.

Its result files end in lines "KEY  value" and its roofline.json holds the same as JSON, or as a list of
such lines in a port to Python 3. CONFIG maps each option to the list of its words.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any

LINE = re.compile(r"([A-Z][A-Z0-9_]+)\s+(\S.*)")
MARK = "META_DATA"

GPU_NAME = re.compile(
    r"(?<![a-z0-9])(?:gpu|cuda|tesla|quadro|geforce|titan|[agr]tx|rtx\d+|gtx\d+|mi\d{2,3}x?|[akptv]\d{1,3}|[bh][12]00)"
    r"(?![a-z0-9])",
    re.IGNORECASE,
)
"""Words in a name that promise a GPU."""


def metadata(lines: Iterable[str]) -> dict[str, Any]:
    """KEY to value of every such line; Python literals are read as such, all else stays text."""
    found: dict[str, Any] = {}
    for line in lines:
        if match := LINE.fullmatch(line.strip()):
            found.setdefault(match[1], _literal(match[2].strip()))
    return found


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def option(config: Any, name: str) -> str:
    """The words of one option of CONFIG on one line, "" where it is not given."""
    words = config.get(name, "") if isinstance(config, Mapping) else ""
    return " ".join(map(str, words)) if isinstance(words, list | tuple) else str(words)


def host(known: Mapping[str, Any]) -> str:
    """The host's name: plain, or the first of the triple that the resolver returned."""
    name = known.get("HOSTNAME", "")
    return str(name[0] if isinstance(name, list | tuple) and name else name or "")


def machine(known: Mapping[str, Any]) -> str:
    """The host's architecture out of UNAME (x86_64, aarch64, ppc64), "" where not told."""
    name = known.get("UNAME", "")
    if isinstance(name, list | tuple) and len(name) > 4:
        return str(name[4])
    found = re.search(r"machine='(\w+)'", str(name))
    return found[1] if found else ""


def device(known: Mapping[str, Any], comment: str = "") -> str:
    """CPU or GPU by ERT_GPU, host and architecture as told; what the configuration's comment calls it.

    Folder and result names are labels that somebody chose, and no evidence of what was measured.
    """
    gpu = option(known.get("CONFIG"), "ERT_GPU").lower()
    kind = {"true": "GPU", "false": "CPU"}.get(gpu, "")
    name, architecture = host(known), machine(known)
    text = f"{kind or 'device'} of host {name}" if name else kind
    if architecture and kind != "GPU":
        text += f" ({architecture})"
    return text + (f", called {comment!r} in its configuration" if comment else "")


def remarks(known: Mapping[str, Any], folder: str = "") -> tuple[str, ...]:
    """What contradicts a name: results called after a GPU are a CPU's where ERT_GPU is False."""
    config = known.get("CONFIG")
    called = option(config, "ERT_RESULTS") or folder
    if option(config, "ERT_GPU").lower() == "false" and GPU_NAME.search(called):
        return (
            f"the results are called {called!r}, but ERT_GPU is False: this is the CPU of the host, no GPU",
        )
    return ()
