"""Makes the virtual environment that the Makefile's verbs run in, on any Python 3 with nothing installed."""

# Kept to what Python 3.6 can parse, so that an old interpreter is refused in words, not by a SyntaxError.
import argparse
import json
import os
import shutil
import subprocess
import sys

# The Makefile starts this file with -I: without any path of ours.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench import driver, wheels
from bench.wheels import OFFLINE, Refusal, say

OLDEST, NEWEST = (3, 10), (3, 13)
STAMP = ".roofline-setup"
CHOICES = {"": "", "12": "cuda12", "13": "cuda13", "none": "none"}
"""What CUDA= may say, and the extra of pyproject.toml that it means."""

GPU_EXTRAS = {"cuda12", "cuda13"}
GPU_LEAST = ("numpy", "typer", "rich", "matplotlib")
"""Without these nothing runs on a GPU machine either; without others less is shown."""

BORROWED = "import " + ", ".join(GPU_LEAST)
"""Must work in an environment that has the packages of another."""

SMOKE = "import numpy, scipy, llvmlite.binding, numba"


def main(words: "list[str] | None" = None) -> int:
    """Set up or check; 0 when the environment is ready, 1 with the reason in words."""
    options = arguments().parse_args(words)
    try:
        if options.remove:
            remove(options.venv)
        elif options.collect:
            collect(options)
        elif options.venv:
            cuda = chosen(options.cuda)
            prepare(options.venv, options.extra, options.goal, cuda, options.wheelhouse)
        else:
            check_python(options.goal)
            check_packages(options.extra, options.measuring, chosen(options.cuda))
    except Refusal as refusal:
        sys.stderr.write("set-up: " + str(refusal) + "\n")
        return 1
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--venv", default="", help="folder of the environment; empty: use this Python as it is"
    )
    parser.add_argument("--extra", default="", help="extras of pyproject.toml to install too: dev,audit")
    parser.add_argument("--cuda", default="", help="12, 13 or none instead of what the GPU driver says")
    parser.add_argument("--measuring", default="", help="the device that will be measured, if one was named")
    parser.add_argument("--wheelhouse", default="", help="folder of wheels to install from, if it has any")
    parser.add_argument("--collect", action="store_true", help="fill that folder instead of installing")
    parser.add_argument("--for-python", default="", help="collect for this Python version, such as 3.12")
    parser.add_argument("--for-machine", default="", help="collect for x86_64 or aarch64")
    parser.add_argument("--remove", action="store_true", help="remove the environment if it was made here")
    parser.add_argument("--goal", default="setup", help="the make verb that asked, for the advice")
    return parser


def chosen(cuda: str) -> str:
    """The extra that CUDA= names, "none", or "" to look at the driver."""
    if "/" in cuda:  # modules of clusters keep the toolkit's folder in a variable of this name
        return ""
    major = cuda.lower().replace("cuda", "").strip().split(".")[0]
    if major not in CHOICES:
        raise Refusal(f"CUDA={cuda} is no choice: 12, 13 or none, or leave it out")
    return CHOICES[major]


def prepare(venv: str, extra: str, goal: str, cuda: str = "", house: str = "") -> None:
    """Create `venv` and install; nothing is done when the stamp says that it was done before."""
    gpu, why = picked(venv, cuda)
    wanted = named(extra, gpu)
    if is_ready(venv, wanted):
        return
    check_python(goal)
    python = os.path.join(venv, "bin", "python")
    say(why)
    try:
        if not works(python):
            create(venv, goal)
            write_stamp(venv, made=True)  # where an installation fails, clean may remove what is left
        needs = wheels.requirements(*sorted(wanted))
        if gpu:
            needs = make_way(venv, python, gpu, needs)
        wheels.install(python, needs, goal, house)
        smoke(python, gpu)
    except wheels.Unreachable as refusal:
        borrow(venv, extra, cuda, refusal)
    kept = extras(venv) - (GPU_EXTRAS if gpu else set())
    facts = {"seen": driver.mark(), "gpu": gpu} if not cuda else {}
    names = sorted(kept | wanted)
    write_stamp(venv, pyproject=wheels.fingerprint(), extras=names, made=was_made_here(venv), **facts)
    say("ready in " + venv)


def borrow(venv: str, extra: str, cuda: str, refusal: Refusal) -> None:
    """An environment with the packages of this Python, where nothing can be installed but they are here.

    Only in the place of one that was made here, or of none: what is another's is never cleared.
    """
    if os.path.lexists(venv) and not was_made_here(venv):
        raise refusal
    try:
        check_packages(extra, cuda=cuda)
    except Refusal:
        raise refusal from None
    own = set(wheels.requirements(*extra.split(","))) - set(wheels.requirements())
    if wheels.missing(sorted(own)) or not wheels.twin(venv):
        raise refusal
    write_stamp(venv, made=True)
    if not succeeds([os.path.join(venv, "bin", "python"), "-c", BORROWED]):
        raise refusal
    say("nothing can be installed here: the packages that " + sys.executable + " has are used instead")


def named(extra: str, gpu: str = "") -> "set[str]":
    """The extras asked for, comma-separated, and the GPU's; the audit's packages follow the GPU's toolkit."""
    wanted = {*extra.split(","), gpu} - {""}
    if gpu == "cuda12" and "audit" in wanted:
        wanted = wanted - {"audit"} | {"audit12"}
    return wanted


def picked(venv: str, cuda: str) -> "tuple[str, str]":
    """The extra for the GPUs here, "" for none, and the line that says why; a machine is asked once."""
    if cuda:
        gpu = "" if cuda == "none" else cuda
        return gpu, ("GPU packages: " + gpu if gpu else "no GPU packages") + ", as CUDA= says"
    done = stamp(venv)
    if done.get("seen") == driver.mark() and isinstance(done.get("gpu"), str):
        gpu, why = str(done["gpu"]), "the same GPU as before"
    else:
        gpu, why = driver.extra(driver.look())
    if gpu:
        return gpu, f"GPU packages: {gpu} ({why}); CUDA=12, 13 or none overrides"
    return "", f"no GPU packages: {why} (on a login node name them with CUDA=12 or 13)"


def make_way(venv: str, python: str, gpu: str, needs: "list[str]") -> "list[str]":
    """The requirements less a CuPy that is there already; two builds of CuPy would overwrite each other."""
    others = [name for name in wheels.cupys(python) if name != "cupy-" + gpu + "x"]
    if not others:
        return needs
    if "cupy" in others:
        say("CuPy is here already, built for this machine: it is kept")
        return [need for need in needs if not need.startswith("cupy-")]
    if not was_made_here(venv):
        raise Refusal(
            "{} has {}, but this machine needs cupy-{}x, and both cannot be: name another folder with VENV=, "
            "or keep what is there with CUDA=none".format(venv, ", ".join(others), gpu)
        )
    say("removing " + ", ".join(others) + ", which cannot stand beside cupy-" + gpu + "x")
    wheels.run([python, "-m", "pip", "uninstall", "-y", *others])
    return needs


def collect(options: argparse.Namespace) -> None:
    """Fill the folder of wheels for the machine that CUDA= names, or for this one."""
    if not options.wheelhouse:
        raise Refusal("name a folder for the wheels: make wheelhouse WHEELHOUSE=wheelhouse")
    gpu, why = picked("", chosen(options.cuda))
    say(why)
    ours = os.path.join(options.venv, "bin", "python") if options.venv else ""
    python = ours if ours and works(ours) else sys.executable
    extra = named(options.extra, gpu)
    machine = (options.for_python, options.for_machine)
    wheels.collect(python, wheels.requirements(*sorted(extra)), options.wheelhouse, *machine)


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
    names = found.get("extras") if found.get("pyproject") == wheels.fingerprint() else None
    return {str(name) for name in names} if isinstance(names, list) else set()


def was_made_here(venv: str) -> bool:
    """Whether we made the environment; one that was there before is never removed."""
    return stamp(venv).get("made") is True


def remove(venv: str) -> None:
    if venv and was_made_here(venv):
        shutil.rmtree(venv)
        say("removed " + venv)


def is_ready(venv: str, wanted: "set[str]") -> bool:
    """Whether the stamp is of this pyproject.toml and its extras, and the interpreter is still there."""
    done = stamp(venv).get("pyproject") == wheels.fingerprint() and wanted <= extras(venv)
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
        raise wheels.Unreachable(
            f"this Python {name} has no venv module (Debian and Ubuntu ship it apart): type: {line}; without "
            f"that right, use the packages that are there: {OFFLINE}"
        ) from None
    if os.path.isdir(venv) and os.listdir(venv) and not os.path.exists(os.path.join(venv, "pyvenv.cfg")):
        raise Refusal(
            f"{venv} is a folder with other things in it: name another, e.g. make {goal} VENV=.venv"
        )
    say(f"making a virtual environment for Python {name} in {venv}")
    done = wheels.run([sys.executable, "-m", "venv", "--clear", venv])
    if done.returncode:
        raise Refusal(f"{venv} could not be made: {wheels.explain(done.stdout, goal)}")


def smoke(python: str, gpu: str = "") -> None:
    """The compiled packages must load here (an old C library or a foreign build shows now)."""
    done = wheels.run([python, "-c", SMOKE + (", cupy" if gpu else "")])
    if done.returncode:
        raise Refusal("the installed packages do not load: " + wheels.explain(done.stdout, "setup"))


def check_packages(extra: str, device: str = "", cuda: str = "") -> None:
    """Without an environment of our own: Refusal that names what this Python lacks for the device.

    A GPU is measured with little more than CuPy; what else is missing is told and done without. A GPU
    that nobody named and that this Python cannot drive leaves the work to the CPU.
    """
    asked = device.startswith(("cuda", "numba"))
    gpu = "" if device and not asked else picked("", cuda)[0]
    lacking = without_cupy(gpu) if gpu or asked else ""
    if lacking and asked:
        raise Refusal(f"device {device} was asked for, but {lacking}")
    if lacking:
        say(lacking + "; without it the CPU is measured")
    absent = wheels.missing(wheels.requirements(*sorted(named(extra))))
    on_gpu = bool(gpu or asked) and not lacking
    vital = {name: has for name, has in absent.items() if not on_gpu or name in GPU_LEAST}
    if vital:
        raise Refusal(
            "{} lacks {}; install them, or let the suite make its own environment: make setup".format(
                sys.executable and os.path.basename(sys.executable), ", ".join(vital.values())
            )
        )
    if absent:
        say("going on for the GPU without " + ", ".join(absent.values()) + ": what needs them is left out")


def without_cupy(gpu: str) -> str:
    """What stands between this Python and the GPU, "" when CuPy is here in a build that the driver runs."""
    found = wheels.cupys(sys.executable)
    name = "cupy-{}x".format(gpu or "cuda13")
    if not found:
        return f"this Python lacks CuPy: install {name} (or make bench, which makes its own environment)"
    if gpu == "cuda12" and found == ["cupy-cuda13x"]:
        return "this Python has cupy-cuda13x, which this driver or GPU is too old for: install " + name
    return ""


if __name__ == "__main__":
    sys.exit(main())
