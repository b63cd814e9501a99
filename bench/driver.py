"""Which NVIDIA driver and GPUs are here, and so which wheels fit, found out with nothing installed."""

# Kept to what Python 3.6 can parse, like bench/environment.py, which asks before there is an environment.
import hashlib
import os
import re
import shutil
import subprocess

CUDA_13_DRIVER, CUDA_12_DRIVER = 580, 525
"""Oldest driver branch that runs programs of each CUDA major version."""

CUDA_13_LEAST, LEAST = (7, 5), (7, 0)
"""Least compute capability that CUDA 13 still compiles for, and the least that there are kernels for."""

SMI_PLACES = ("/usr/lib/wsl/lib", "/usr/local/nvidia/bin", "/opt/bin", "/usr/sbin")
"""Where nvidia-smi lies when it is not on the path: WSL and containers."""

SMI_SECONDS = 60

OLD_NAMES = re.compile(
    r"\b(G?V100|TITAN (?:V|Xp?)|G?P100|P40|P4|P6|GTX (?:7|9|10)\d\d|Quadro [PMK]\d+|Tesla [MK]\d+)\b"
)
"""Names of GPUs below compute capability 7.5, for drivers that tell no compute capability."""

JETSON_CUDA = ((38, "13"), (36, "12"))
"""First release of Jetson Linux (the R of /etc/nv_tegra_release) with each CUDA major version."""


class Found:
    """What was read: driver version, newest CUDA it runs, GPUs (name, compute capability), Jetson release."""

    def __init__(
        self,
        driver: str = "",
        cuda: str = "",
        gpus: "tuple[tuple[str, tuple[int, ...]], ...]" = (),
        jetson: str = "",
    ) -> None:
        self.driver = driver
        self.cuda = cuda
        self.gpus = gpus
        self.jetson = jetson


def look(root: str = "/") -> Found:
    """Ask nvidia-smi, else the files of the driver; what neither tells stays empty."""
    found = by_smi(smi())
    release = re.search(r"# R(\d+)", text(root, "etc/nv_tegra_release"))
    found.jetson = release.group(1) if release else ""
    version = re.search(r"(?m)^NVRM version:.*?\s(\d+\.[\d.]+)\s", text(root, "proc/driver/nvidia/version"))
    found.driver = found.driver or (version.group(1) if version else "")
    found.gpus = found.gpus or tuple((name, ()) for name in names(root))
    return found


def smi() -> str:
    """Path of nvidia-smi, "" where there is none."""
    return shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=os.pathsep.join(SMI_PLACES)) or ""


def by_smi(program: str) -> Found:
    """Driver, GPUs and newest CUDA as nvidia-smi tells them; old ones do not know compute_cap."""
    if not program:
        return Found()
    for fields in ("driver_version,compute_cap,name", "driver_version,name"):
        listed = ask([program, "--query-gpu=" + fields, "--format=csv,noheader"])
        rows = [[cell.strip() for cell in line.split(",")] for line in listed.splitlines()]
        rows = [row for row in rows if len(row) == fields.count(",") + 1 and re.match(r"\d+\.\d+", row[0])]
        if rows:
            told = re.search(r"CUDA(?: UMD)? Version:\s*(\d+\.\d+)", ask([program]))
            capable = [numbers(row[1]) if len(row) == 3 else () for row in rows]
            gpus = tuple(zip([row[-1] for row in rows], capable))  # noqa: B905  Python 3.6 has no strict
            return Found(rows[0][0], told.group(1) if told else "", gpus)
    return Found()


def ask(words: "list[str]") -> str:
    """What the program printed, "" when it failed or did not end in time."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,  # noqa: UP021  Python 3.6 has no other word
            timeout=SMI_SECONDS,
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def names(root: str) -> "list[str]":
    """Names of the GPUs in the driver's own files."""
    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    cards = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [re.search(r"(?m)^Model:\s*(.+?)\s*$", text(folder, card + "/information")) for card in cards]
    return [model.group(1) if model else "NVIDIA GPU" for model in found]


def text(root: str, name: str) -> str:
    """A small file as text, "" where there is none."""
    try:
        with open(os.path.join(root, name), encoding="utf-8", errors="replace") as file:
            return file.read().replace("\0", "")
    except OSError:
        return ""


def numbers(version: str) -> "tuple[int, ...]":
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def extra(found: Found) -> "tuple[str, str]":
    """The extra of pyproject.toml that these GPUs need, "" for none, and why in one clause."""
    if found.jetson:
        return for_jetson(int(found.jetson))
    if not found.driver:
        return "", "no NVIDIA driver found"
    if not found.gpus:
        return "", f"driver {found.driver} shows no GPU"
    branch = numbers(found.driver)[0]
    old = [gpu for gpu in found.gpus if gpu[1] and gpu[1] < LEAST]
    if old and len(old) == len(found.gpus):
        return "", f"{shown(old[0])} is below compute capability 7.0, the least that is measured"
    if branch < CUDA_12_DRIVER:
        return (
            "",
            f"driver {found.driver} is too old for the CUDA 12 wheels: they need {CUDA_12_DRIVER} or newer",
        )
    because = "driver " + found.driver + (", CUDA " + found.cuda if found.cuda else "")
    newest = numbers(found.cuda)[0] if found.cuda else 13 if branch >= CUDA_13_DRIVER else 12
    before = [gpu for gpu in found.gpus if (gpu[1] < CUDA_13_LEAST if gpu[1] else OLD_NAMES.search(gpu[0]))]
    if newest >= 13 and before:
        return "cuda12", f"{shown(before[0])} is below compute capability 7.5, which CUDA 13 no longer knows"
    return ("cuda13" if newest >= 13 else "cuda12"), f"{shown(found.gpus[0])}, {because}"


def for_jetson(release: int) -> "tuple[str, str]":
    """By the release of Jetson Linux: it has no driver version of the usual kind."""
    for least, major in JETSON_CUDA:
        if release >= least:
            return "cuda" + major, f"Jetson Linux R{release} has CUDA {major}"
    return "", f"Jetson Linux R{release} is too old: the CUDA 12 wheels need R36 (JetPack 6) or newer"


def shown(gpu: "tuple[str, tuple[int, ...]]") -> str:
    name, capability = gpu
    return name + (" ({})".format(".".join(map(str, capability))) if capability else "")


def mark(root: str = "/") -> str:
    """Changes when driver or GPUs do; read from files alone, so that a second set-up asks no program."""
    devices = os.path.join(root, "dev")
    nodes = (
        sorted(n for n in os.listdir(devices) if re.match(r"nvidia|dxg$|nvhost", n))
        if os.path.isdir(devices)
        else []
    )
    parts = [
        text(root, "proc/driver/nvidia/version"),
        text(root, "etc/nv_tegra_release"),
        *names(root),
        *nodes,
    ]
    return hashlib.sha256("\n".join([*parts, smi()]).encode()).hexdigest()[:16]
