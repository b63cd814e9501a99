"""The measuring process: `python -m bench.running.worker PARENT` obeys JSON lines on stdin.

    {"import": "cuda:0"}                                      -> {"imported": true}
    {"open": "cpu", "round": 3, "process": 7}                 -> {"ready": true}   (together: sees all GPUs)
    {"variants": ["read", {precision}, "DRAM", 2]}            -> {"variants": [...]}
    {"warm_up": 0.5}                                          -> {"warm": true}
    {"measure": {planned}, "order": 4, "scale": 1.0}          -> {"sample": {...}}

A failure that has a name answers {"error": exit code, "message": ...}. The process ends with its
parent, at the end of stdin, or when nobody reads it any more: it never burns a CPU on its own. It also
ends when its GPU's context is lost, with the reason as its last words: nothing in it works after that.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, TextIO

from bench.backends import Backend, open_backend
from bench.errors import BenchError, DeviceError
from bench.gpu.faults import ContextLost
from bench.gpu.visible import widened
from bench.planning.planned import Planned
from bench.profile.encoding import decode, dumps, loads
from bench.profile.records import Precision
from bench.running.measure import Session

PR_SET_PDEATHSIG = 1

AHEAD = {"cuda": ("bench.backends.cuda", "cupy"), "numba": ("bench.backends.numba_cuda", "numba.cuda")}
"""Modules that take seconds to import, by kind of device: a process may have them before its turn comes."""


def die_with(parent: int) -> None:
    """Ask Linux for SIGKILL when the parent ends; elsewhere the end of stdin has to do."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def own_stdout() -> TextIO:
    """The answers' stream; whatever else prints to stdout goes to stderr from now on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return answers


class Worker:
    """Answers one request at a time; the device is opened once."""

    def __init__(self, opener: Callable[[str], Backend] = open_backend) -> None:
        self._opener = opener
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """The open session; ValueError before {"open": ...}."""
        if self._session is None:
            raise ValueError("no device is open yet")
        return self._session

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What to reply; a failure with an exit code becomes part of the reply."""
        try:
            return self._answer(request)
        except ContextLost:
            raise
        except (BenchError, ImportError, MemoryError) as error:
            from bench.outcome import outcome

            code, sentence = outcome(error)
            return {"error": code, "message": sentence}

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if "import" in request:
            for name in AHEAD.get(request["import"].partition(":")[0], ()):
                with suppress(Exception):  # it is told when the device is opened
                    import_module(name)
            return {"imported": True}
        if "open" in request:
            if request.get("together"):
                os.environ.update(widened(os.environ))  # before CUDA looks
            backend = self._opener(request["open"])
            self._session = Session(backend, request["round"], request["process"])
            return {"ready": True}
        if "variants" in request:
            kernel, precision, level, threads = request["variants"]
            found = self.session.backend.variants(kernel, decode(Precision, precision), level, threads)
            return {"variants": list(found)}
        if "warm_up" in request:
            self.session.warm_up(request["warm_up"])
            return {"warm": True}
        planned = decode(Planned, request["measure"], "planned")
        return {"sample": self.session.sample(planned, request["order"], request["scale"])}


def serve(requests: TextIO, answers: TextIO, worker: Worker) -> None:
    """Answer every line until there are no more or nobody listens."""
    for line in requests:
        try:
            answers.write(dumps(worker.answer(loads(line))) + "\n")
            answers.flush()
        except BrokenPipeError:
            os._exit(1)
        except ContextLost as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(DeviceError.exit_code)


def main() -> None:
    """Entry point; the parent's process id is the first argument."""
    die_with(int(sys.argv[1]))
    serve(sys.stdin, own_stdout(), Worker())


if __name__ == "__main__":
    main()
