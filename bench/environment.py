"""Makes the virtual environment that the Makefile's verbs run in, on any Python 3 with nothing installed."""

# Kept to what Python 3.6 can parse, so that an old interpreter is refused in words, not by a SyntaxError.
import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

OLDEST, NEWEST = (3, 10), (3, 13)
STAMP = ".roofline-setup"
CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OFFLINE = "make bench VENV= PYTHON=python3"

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
        r"NameResolutionError|name resolution|Name or service not known|NewConnectionError"
        r"|ConnectTimeoutError|Network is unreachable|Connection refused|ProxyError|SSLError|Read timed out",
        "no package index could be reached: use the packages that are there with "
        + OFFLINE
        + ", or name a mirror in PIP_INDEX_URL",
    ),
)
"""What pip says, and what to do about it; the first that matches is told."""


class Refusal(Exception):
    """One sentence: what is wrong with this machine and the line to type."""


def main(words: "list[str] | None" = None) -> int:
    """Set up or check; 0 when the environment is ready, 1 with the reason in words."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--venv", default="", help="folder of the environment; empty: use this Python as it is"
    )
    parser.add_argument("--extra", default="", help="extra of pyproject.toml to install too, such as dev")
    parser.add_argument("--remove", action="store_true", help="remove the environment if it was made here")
    parser.add_argument("--goal", default="setup", help="the make verb that asked, for the advice")
    options = parser.parse_args(words)
    try:
        if options.remove:
            remove(options.venv)
        elif options.venv:
            prepare(options.venv, options.extra, options.goal)
        else:
            check_python(options.goal)
            check_packages(options.extra)
    except Refusal as refusal:
        sys.stderr.write("set-up: " + str(refusal) + "\n")
        return 1
    return 0


def say(sentence: str) -> None:
    print("set-up: " + sentence, flush=True)


def prepare(venv: str, extra: str, goal: str) -> None:
    """Create `venv` and install; nothing is done when the stamp says that it was done before."""
    if is_ready(venv, extra):
        return
    check_python(goal)
    python = os.path.join(venv, "bin", "python")
    if not works(python):
        create(venv, goal)
        write_stamp(venv, made=True)  # an installation that fails leaves an environment that clean may remove
    install(python, extra, goal)
    smoke(python)
    names = sorted(extras(venv) | {extra} - {""})
    write_stamp(venv, pyproject=fingerprint(), extras=names, made=was_made_here(venv))
    say("ready in " + venv)


def fingerprint() -> str:
    """Hash of pyproject.toml: a changed list of packages means a new installation."""
    with open(os.path.join(CHECKOUT, "pyproject.toml"), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def stamp(venv: str) -> "dict[str, object]":
    try:
        with open(os.path.join(venv, STAMP)) as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_stamp(venv: str, **facts: object) -> None:
    with open(os.path.join(venv, STAMP), "w") as file:
        json.dump(facts, file)


def extras(venv: str) -> "set[str]":
    """Extras installed for this very pyproject.toml."""
    found = stamp(venv)
    names = found.get("extras") if found.get("pyproject") == fingerprint() else None
    return {str(name) for name in names} if isinstance(names, list) else set()


def was_made_here(venv: str) -> bool:
    """Whether we made the environment; one that was there before is never removed."""
    return stamp(venv).get("made") is True


def remove(venv: str) -> None:
    if venv and was_made_here(venv):
        shutil.rmtree(venv)
        say("removed " + venv)


def is_ready(venv: str, extra: str) -> bool:
    """Whether the stamp is of this pyproject.toml and extra, and the interpreter is still there."""
    done = stamp(venv).get("pyproject") == fingerprint() and (not extra or extra in extras(venv))
    return done and os.access(os.path.join(venv, "bin", "python"), os.X_OK)


def works(python: str) -> bool:
    """Whether the environment's interpreter starts, is of an accepted version and has pip."""
    test = f"import sys, pip; sys.exit(not {OLDEST} <= sys.version_info[:2] <= {NEWEST})"
    return succeeds([python, "-c", test])


def succeeds(words: "list[str]") -> bool:
    try:
        return subprocess.call(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def check_python(goal: str, version: "tuple[int, int] | None" = None) -> None:
    """Refusal with the line to type unless this Python is one that Numba and NumPy 2 run on."""
    ours = version or (sys.version_info[0], sys.version_info[1])
    if sys.implementation.name != "cpython":
        raise Refusal(f"{sys.implementation.name} cannot run Numba: {advice(goal)}")
    if not OLDEST <= ours <= NEWEST:
        age = "old" if ours < OLDEST else "new"
        raise Refusal(
            "Python {}.{} is too {}: 3.10 to 3.13 are accepted; {}".format(*ours, age, advice(goal))
        )


def advice(goal: str) -> str:
    """The line that uses a better Python: one found on PATH, else how to get one."""
    names = [f"python3.{minor}" for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
    # A name on PATH may be an empty shim, or Debian's Python without venv: it must start and have it.
    found = [
        name
        for name in names
        if shutil.which(name) and succeeds([name, "-c", "from ensurepip import version"])
    ]
    if found:
        return f"type: make {goal} PYTHON={found[0]}"
    return (
        "install one (apt install python3.11 python3.11-venv, dnf install python3.11, "
        f"or module load python on a cluster), then type: make {goal} PYTHON=python3.11"
    )


def create(venv: str, goal: str) -> None:
    """A fresh environment in `venv`; Debian's missing python3-venv and read-only folders are named."""
    name = "{}.{}".format(*sys.version_info[:2])
    try:
        import venv as _  # noqa: F401
        from ensurepip import version as __  # noqa: F401
    except ImportError:
        sudo = "" if os.geteuid() == 0 else "sudo "
        line = f"{sudo}apt install python{name}-venv"
        raise Refusal(
            f"this Python {name} has no venv module (Debian and Ubuntu ship it apart): type: {line}; without "
            f"that right, use the packages that are there: {OFFLINE}"
        ) from None
    if os.path.isdir(venv) and os.listdir(venv) and not os.path.exists(os.path.join(venv, "pyvenv.cfg")):
        raise Refusal(
            f"{venv} is a folder with other things in it: name another, e.g. make {goal} VENV=.venv"
        )
    say(f"making a virtual environment for Python {name} in {venv}")
    done = run([sys.executable, "-m", "venv", "--clear", venv])
    if done.returncode:
        raise Refusal(f"{venv} could not be made: {explain(done.stdout, goal)}")


def install(python: str, extra: str, goal: str) -> None:
    """The packages of pyproject.toml; the checkout itself stays what runs."""
    constraint = pip_constraint(python)
    if constraint:
        say("a pip constraint file is in force: " + constraint)
    if os.environ.get("PYTHONPATH"):
        say("PYTHONPATH is set: packages found there come before those of the environment")
    say("installing the packages that pyproject.toml names (the first time about a minute and 1 GB)")
    # The requirements, not `-e .`: with nothing to build a read-only checkout or a folder of wheels will do.
    words = [python, "-m", "pip", "install", "--progress-bar", "off"]
    done = run([*words, *requirements(extra)], echo=r"Downloading (\S+)")
    if done.returncode:
        held = constraint and re.search(r"constraint|conflict|requirements file", done.stdout)
        reason = lift(constraint, goal) if held else explain(done.stdout, goal)
        raise Refusal("the packages could not be installed: " + reason)


def run(words: "list[str]", echo: str = "") -> "subprocess.CompletedProcess[str]":
    """Run and keep the output; of the lines that match `echo` the first group is shown at once."""
    # --user and --target from the environment or pip's configuration cannot be used in a virtual environment.
    env = {"PIP_RETRIES": "2", **os.environ, "PIP_USER": "0", "PIP_NO_INPUT": "1", "PYTHONUNBUFFERED": "1"}
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


def smoke(python: str) -> None:
    """The compiled packages must load here (an old C library or a foreign build shows now)."""
    done = run([python, "-c", "import numpy, scipy, llvmlite.binding, numba"])
    if done.returncode:
        raise Refusal("the installed packages do not load: " + explain(done.stdout, "setup"))


def check_packages(extra: str) -> None:
    """Without an environment of our own: name every package that this Python lacks or has too old."""
    from importlib import metadata

    missing = []
    for need in requirements(extra):
        found = re.match(r"([A-Za-z0-9_.-]+)\s*(?:>=\s*([\d.]+))?", need)
        name, least = (found.group(1), found.group(2) or "0") if found else (need, "0")
        try:
            if numbers(metadata.version(name)) < numbers(least):
                missing.append(f"{name} (has {metadata.version(name)}, needs {least})")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        raise Refusal(
            "{} lacks {}; install them, or let the suite make its own environment: make setup".format(
                sys.executable and os.path.basename(sys.executable), ", ".join(missing)
            )
        )


def requirements(extra: str) -> "list[str]":
    """The requirement lines of pyproject.toml; read as text, since Python 3.10 has no TOML reader."""
    with open(os.path.join(CHECKOUT, "pyproject.toml"), encoding="utf-8") as file:
        words = file.read()
    keys = ["dependencies"] + ([extra] if extra else [])
    blocks = [re.search(rf"(?ms)^{re.escape(key)}\s*=\s*\[(.*?)\]\s*$", words) for key in keys]
    return [need for block in blocks if block for need in re.findall(r'"([^"]+)"', block.group(1))]


def numbers(version: str) -> "tuple[int, ...]":
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


if __name__ == "__main__":
    sys.exit(main())
