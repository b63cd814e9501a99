"""Installs or collects the packages that pyproject.toml names, by pip, and says what to do when it cannot."""

# Kept to what Python 3.6 can parse, like bench/environment.py, whose part this is.
import hashlib
import os
import re
import site
import subprocess
import sys

from bench import driver

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OFFLINE = "make bench VENV= PYTHON=python3"
CACHE_VARIABLE = "ROOFLINE_CACHE_DIR"

NO_INDEX = (
    r"NameResolutionError|name resolution|Name or service not known|NewConnectionError"
    r"|ConnectTimeoutError|Network is unreachable|Connection refused|ProxyError|SSLError|Read timed out"
)
"""What pip says where there is no network."""

TROUBLE = (
    (
        r"No space left on device|Disk quota exceeded",
        "the disk or your quota is full: put the environment and the caches where there is room, e.g. "
        "make {goal} VENV=/scratch/venv PIP_CACHE_DIR=/scratch/pip TMPDIR=/scratch",
    ),
    (
        r"Permission denied|Read-only file system",
        "a folder cannot be written: name ones that can, e.g. "
        "make {goal} VENV=/scratch/venv PIP_CACHE_DIR=/scratch/pip TMPDIR=/scratch",
    ),
    (
        NO_INDEX,
        "no package index could be reached: bring the packages in a folder that make wheelhouse fills where "
        "there is one, use those that are here with " + OFFLINE + ", or name a mirror in PIP_INDEX_URL",
    ),
)
"""What pip says, and what to do about it; the first that matches is told."""

NEWEST_LIBC = 28
"""For another machine wheels of the C library 2.N and older are collected: RHEL 8 and all that came later."""


class Refusal(Exception):
    """One sentence: what is wrong with this machine and the line to type."""


class Unreachable(Refusal):
    """There is no package index to install from, or no way to install."""


def say(sentence: str) -> None:
    print("set-up: " + sentence, flush=True)


def fingerprint() -> str:
    """Hash of pyproject.toml: a changed list of packages means a new installation."""
    with open(os.path.join(CHECKOUT, "pyproject.toml"), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def install(python: str, needs: "list[str]", goal: str, house: str = "") -> None:
    """The packages `needs`; from the folder of wheels `house` where there is one."""
    constraint = pip_constraint(python)
    if constraint:
        say("a pip constraint file is in force: " + constraint)
    if os.environ.get("PYTHONPATH"):
        say("PYTHONPATH is set: packages found there come before those of the environment")
    # The requirements, not `-e .`: with nothing to build a read-only checkout or a folder of wheels will do.
    words = [python, "-m", "pip", "install", "--progress-bar", "off"]
    stocked = is_stocked(house)
    if stocked:
        say("installing from the wheels in " + house + ", without a network")
        words += ["--no-index", "--find-links", house]
    else:
        size = "3 GB, CUDA's libraries among them" if any("cupy" in need for need in needs) else "1 GB"
        say(
            "installing the packages that pyproject.toml names (the first time some minutes and " + size + ")"
        )
    done = run([*words, *needs], echo=r"Downloading (\S+)")
    if done.returncode:
        held = constraint and re.search(r"constraint|conflict|requirements file", done.stdout)
        reason = lift(constraint, goal) if held else explain(done.stdout, goal)
        if stocked and "No matching distribution" in done.stdout:
            reason += f"; {house} was made for another Python, machine or extra: make it anew, or WHEELHOUSE="
        alone = not held and re.search(NO_INDEX, done.stdout)
        raise (Unreachable if alone else Refusal)("the packages could not be installed: " + reason)


def is_stocked(house: str) -> bool:
    return bool(house) and os.path.isdir(house) and any(n.endswith(".whl") for n in os.listdir(house))


def collect(python: str, needs: "list[str]", house: str, version: str = "", machine: str = "") -> None:
    """Wheels of `needs` and all that they need into the folder `house`, for a machine without a network.

    version, machine: Python (3.12) and processor (x86_64, aarch64) of that machine, where they differ from
    this one's; pip judges conditions on the Python version by the one that runs, so the same one is better.
    """
    words = [python, "-m", "pip", "download", "--progress-bar", "off", "--only-binary=:all:", "--dest", house]
    if version:
        words += ["--python-version", version]
    if version or machine:
        words += [word for tag in platforms(machine or os.uname().machine) for word in ("--platform", tag)]
    say("collecting wheels in " + house)
    done = run([*words, *needs], echo=r"Saved (\S+)")
    if done.returncode:
        raise Refusal("the wheels could not be collected: " + explain(done.stdout, "wheelhouse"))
    wheels = [os.path.join(house, name) for name in os.listdir(house) if name.endswith(".whl")]
    size = sum(os.path.getsize(wheel) for wheel in wheels) / 1e9
    say(f"{len(wheels)} wheels, {size:.1f} GB in {house}: copy the checkout with it, set-up installs from it")


def platforms(machine: str) -> "list[str]":
    """Every tag of wheels that a Linux with C library 2.28 takes: pip matches names, not ages."""
    tags = [f"manylinux_2_{n}_{machine}" for n in range(NEWEST_LIBC, 4, -1)]
    return tags + [f"{name}_{machine}" for name in ("manylinux2014", "manylinux2010", "manylinux1")]


def run(words: "list[str]", echo: str = "") -> "subprocess.CompletedProcess[str]":
    """Run and keep the output; of the lines that match `echo` the first group is shown at once."""
    # --user and --target from the environment or pip's configuration cannot be used in a virtual environment.
    env = {"PIP_RETRIES": "2", **os.environ, "PIP_USER": "0", "PIP_NO_INPUT": "1", "PYTHONUNBUFFERED": "1"}
    if os.environ.get(CACHE_VARIABLE):
        env.setdefault("PIP_CACHE_DIR", os.path.join(os.environ[CACHE_VARIABLE], "pip"))
    pipe = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, universal_newlines=True
    )
    kept = []
    for line in pipe.stdout or ():
        kept.append(line)
        shown = re.search(echo, line) if echo else None
        if shown:
            print("  " + shown.group(1), flush=True)
    return subprocess.CompletedProcess(words, pipe.wait(), "".join(kept))


def pip_constraint(python: str) -> str:
    """Which constraint file holds pip back: the environment variable or pip's own configuration."""
    if os.environ.get("PIP_CONSTRAINT"):
        return "PIP_CONSTRAINT=" + os.environ["PIP_CONSTRAINT"]
    listed = run([python, "-m", "pip", "config", "list"]).stdout
    found = re.search(r"(?m)^(?:global|install|site|user)\.constraint=(.*)$", listed)
    return "pip configuration " + found.group(1).strip("'") if found else ""


def lift(constraint: str, goal: str) -> str:
    """How to go on without the constraint file."""
    switch = "PIP_CONSTRAINT=" if constraint.startswith("PIP_CONSTRAINT") else "PIP_CONFIG_FILE=/dev/null"
    return f"{constraint} holds pip back; lift it for this one command: make {goal} {switch}"


def explain(output: str, goal: str) -> str:
    """The remedy for what pip or venv said, else its own last words."""
    for pattern, remedy in TROUBLE:
        if re.search(pattern, output):
            return remedy.format(goal=goal)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no reason was given"])[-1]


def requirements(*extras: str) -> "list[str]":
    """The requirement lines of pyproject.toml; read as text, since Python 3.10 has no TOML reader."""
    with open(os.path.join(CHECKOUT, "pyproject.toml"), encoding="utf-8") as file:
        words = file.read()
    keys = ["dependencies", *filter(None, extras)]
    blocks = [re.search(rf"(?ms)^{re.escape(key)}\s*=\s*\[(.*?)\]\s*$", words) for key in keys]
    return [need for block in blocks if block for need in re.findall(r'"([^"]+)"', block.group(1))]


def twin(venv: str) -> bool:
    """Make an environment in `venv` with the packages of this Python; whether that worked.

    Their folders are named: where this Python is an environment itself, the option --system-site-packages
    would show those of the Python that it was made from, and none of its own.
    """
    if run([sys.executable, "-m", "venv", "--clear", "--without-pip", venv]).returncode:
        return False
    folder = os.path.join(venv, "lib", "python{}.{}".format(*sys.version_info[:2]), "site-packages")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "borrowed.pth"), "w") as file:
        file.write(f"import site; list(map(site.addsitedir, {site.getsitepackages()!r}))\n")
    return True


def cupys(python: str) -> "list[str]":
    """Builds of CuPy that an interpreter has."""
    code = (
        "from importlib import metadata as m; "
        "print(*sorted({str(d.metadata['Name']).lower() for d in m.distributions()}), sep='\\n')"
    )
    listed = run([python, "-c", code]).stdout.split()
    return [name for name in listed if re.match(r"cupy(-cuda\d+x|-rocm.*)?$", name)]


def missing(needs: "list[str]") -> "dict[str, str]":
    """{package: how it is lacking} of every requirement that this Python does not meet."""
    from importlib import metadata

    found = {}
    for need in needs:
        parts = re.match(r"([A-Za-z0-9_.-]+)(?:\[.*\])?\s*(?:>=\s*([\d.]+))?", need)
        name, least = (parts.group(1), parts.group(2) or "0") if parts else (need, "0")
        try:
            if driver.numbers(metadata.version(name)) < driver.numbers(least):
                found[name] = f"{name} (has {metadata.version(name)}, needs {least})"
        except metadata.PackageNotFoundError:
            found[name] = name
    return found
