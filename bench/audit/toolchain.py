"""From CUDA C++ to a listing: NVRTC and nvdisasm of the pip wheels, which need neither a driver nor a GPU."""

from __future__ import annotations

import importlib
import io
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from bench.errors import DeviceError

ARCHITECTURES = ("70", "75", "80", "86", "87", "89", "90", "90a", "100", "103", "110", "120", "121")
"""What the suite has CUDA code for, as in sm_90a."""

STANDARD, FLUSH_TO_ZERO = "c++17", True
"""As on a GPU: CuPy always flushes denormals to zero."""

PATIENCE = 300
"""Seconds after which a disassembler counts as hung."""

REMEDY = "type `make audit`, which installs it, or install it by hand"


class CompileError(Exception):
    """What the compiler or the disassembler said first."""


@dataclass(frozen=True)
class Usage:
    """What ptxas -v says of one function: registers a thread, bytes on its stack and of its spills."""

    registers: int
    stack: int = 0
    spilled: int = 0


@dataclass(frozen=True)
class Build:
    """A family compiled for one architecture: its listing ("" where `unread` says why), usage by function."""

    listing: str
    usage: dict[str, Usage] = field(default_factory=dict)
    unread: str = ""


@dataclass(frozen=True)
class Toolchain:
    """The tools at hand: versions, the disassembler, the headers, the architectures that NVRTC knows."""

    nvrtc: str
    nvdisasm: str
    disassembler: str
    headers: str
    known: tuple[str, ...]

    def lack(self, architecture: str) -> str:
        """Why nothing can be compiled for an architecture, "" where it can."""
        number = architecture.rstrip("af")
        if number in self.known:
            return ""
        older = int(number) < min(map(int, self.known))
        wheels = "the CUDA 12 wheels" if older else "newer wheels"
        return f"NVRTC {self.nvrtc} cannot compile for sm_{architecture}: that needs {wheels}"

    def build(self, source: str, architecture: str) -> Build:
        """Compile and disassemble; CompileError with the first complaint."""
        binary, log = _compile(source, architecture, self.headers)
        try:
            return Build(_disassemble(binary, self.disassembler), usage(log))
        except CompileError as error:
            tool = f"nvdisasm {self.nvdisasm} cannot read sm_{architecture}"
            if "deprecated" not in str(error):
                raise DeviceError(f"{tool} ({error}): install nvidia-cuda-nvdisasm") from None
            return Build("", usage(log), f"registers and spills only: {tool}, that of CUDA 13.0 can")


@cache
def find() -> Toolchain:
    """The tools of this environment; DeviceError names what is missing and how to get it."""
    nvrtc = _nvrtc()
    disassembler = _disassembler()
    status, major, minor = nvrtc.nvrtcVersion()
    refused, known = nvrtc.nvrtcGetSupportedArchs()
    if int(status) or int(refused):
        raise DeviceError("NVRTC does not say its version: install nvidia-cuda-nvrtc anew")
    return Toolchain(
        f"{major}.{minor}", _version(disassembler), disassembler, _headers(), tuple(map(str, known))
    )


def _nvrtc() -> Any:
    """The binding of the run-time compiler, its library loaded."""
    _module("cuda.core", "cuda-core")
    nvrtc = _module("cuda.bindings.nvrtc", "cuda-bindings")
    try:
        nvrtc.nvrtcVersion()
    except Exception as error:  # each version raises another kind when the library is absent
        raise DeviceError(f"the library libnvrtc is missing: {REMEDY}: nvidia-cuda-nvrtc") from error
    return nvrtc


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        why = "is missing" if isinstance(error, ModuleNotFoundError) else f"does not load ({error})"
        raise DeviceError(f"the Python package {package} {why}: {REMEDY}") from None


def _disassembler() -> str:
    """The newest place first: PATH may hold an nvdisasm too old for what NVRTC makes."""
    pathfinder = _module("cuda.pathfinder", "cuda-pathfinder")
    search = getattr(pathfinder, "find_nvidia_binary_utility", lambda name: None)
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    path = os.pathsep.join([*(str(Path(home, "bin")) for home in homes if home), os.environ.get("PATH", "")])
    found = search("nvdisasm") or shutil.which("nvdisasm", path=path)
    if not found:
        raise DeviceError(f"the disassembler nvdisasm is missing: {REMEDY}: nvidia-cuda-nvdisasm")
    return str(found)


def _version(disassembler: str) -> str:
    found = re.search(r"V(\d[\d.]*)", _run([disassembler, "--version"]))
    return found[1] if found else "of unknown version"


def _headers() -> str:
    """The folder of cuda_fp16.h."""
    pathfinder = _module("cuda.pathfinder", "cuda-pathfinder")
    search = getattr(pathfinder, "find_nvidia_header_directory", lambda name: None)
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    for folder in (search("cudart"), *(Path(home, "include") for home in homes if home)):
        if folder and Path(folder, "cuda_fp16.h").is_file():
            return str(folder)
    raise DeviceError(f"the CUDA headers are missing: {REMEDY}: nvidia-cuda-runtime")


def _compile(source: str, architecture: str, headers: str) -> tuple[bytes, str]:
    """The binary and what ptxas said."""
    compiler = _module("cuda.core", "cuda-core")
    if not hasattr(compiler, "Program"):
        compiler = _module("cuda.core.experimental", "cuda-core")
    options = compiler.ProgramOptions(
        std=STANDARD,
        ftz=FLUSH_TO_ZERO,
        arch=f"sm_{architecture}",
        include_path=headers,
        ptxas_options=["-v"],
    )
    log = io.StringIO()
    try:
        made = compiler.Program(source, "c++", options).compile("cubin", logs=log)
    except Exception as error:  # NVRTCError has moved between versions
        raise CompileError(complaint(str(error))) from None
    return bytes(made.code), log.getvalue()


def complaint(text: str) -> str:
    """The first error of a compiler's output in one line, without the file it names."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b", line)]
    found = re.sub(r"^.*?\berror\s*:\s*", "", (errors or lines or ["no reason was given"])[0])
    return found[:200]


def usage(log: str) -> dict[str, Usage]:
    """Usage by function from the output of ptxas -v."""
    found = {}
    for part in re.split(r"Compiling entry function '", log)[1:]:
        name = part.split("'")[0]
        registers = re.search(r"Used (\d+) registers", part)
        stack = re.search(r"(\d+) bytes stack frame", part)
        spills = re.findall(r"(\d+) bytes spill", part)
        if registers:
            found[name] = Usage(int(registers[1]), int(stack[1]) if stack else 0, sum(map(int, spills)))
    return found


def _disassemble(binary: bytes, disassembler: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "code.cubin")
        file.write_bytes(binary)
        return _run([disassembler, "-c", "-hex", str(file)])


def _run(words: list[str]) -> str:
    name = Path(words[0]).name
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise CompileError(f"{name} did not end within {PATIENCE} s") from None
    except OSError as error:
        raise DeviceError(f"{name} cannot be run ({error.strerror}): install nvidia-cuda-nvdisasm") from None
    if done.returncode:
        raise CompileError(complaint(done.stderr or f"{name} ended with code {done.returncode}"))
    return done.stdout
