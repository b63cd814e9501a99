"""A GPU machine where nothing can be installed: the GPU path works without all the optional packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import store
from bench.running import suite

TOP = Path(__file__).resolve().parent.parent

ABSENT = ("scipy", "psutil", "yaml", "pyarrow", "threadpoolctl", "cpuinfo", "pytest")

HIDING = f"""
import sys
from importlib.machinery import PathFinder

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {ABSENT!r} else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Bare
"""
"""Every Python process under this sitecustomize is without the packages, its children too."""

ON_THE_GPU_PATH = (
    "bench/gpu",
    "bench/gpucheck",
    "bench/planning",
    "bench/running",
    "bench/fitting",
    "bench/report",
)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a bare machine's processes."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text(HIDING)
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(TOP))), "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a simulated GPU, made where all packages are."""
    results = tmp_path_factory.mktemp("results")
    return suite.run(
        device="sim:gpu-small", preset="quick", results=results, families=["fma", "mix"], quiet=True
    )


def python(bare: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=TOP, env=bare, capture_output=True, text=True)


def modules() -> list[str]:
    """Dotted names of all modules on the GPU path."""
    files = [path for folder in ON_THE_GPU_PATH for path in (TOP / folder).glob("*.py")]
    files += [TOP / "bench/backends/cuda.py", TOP / "bench/cli.py", TOP / "bench/devices.py"]
    return sorted(p.relative_to(TOP).with_suffix("").as_posix().replace("/", ".") for p in files)


def test_the_packages_are_hidden(bare: dict[str, str]) -> None:
    code = (
        f"from importlib.util import find_spec as f; print([n for n in {ABSENT!r} if f(n)], bool(f('numpy')))"
    )
    assert python(bare, "-c", code).stdout.split("\n")[0] == "[] True"


def test_every_module_of_the_gpu_path_is_imported(bare: dict[str, str]) -> None:
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        importlib.import_module(name)\n"
        "    except ImportError as error:\n        print(name, error)\n"
        "print('done')"
    )
    done = python(bare, "-c", code, *modules())
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_devices_are_listed(bare: dict[str, str]) -> None:
    done = python(bare, "-m", "bench", "devices")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cpu ") and "GPU" in done.stdout
    assert "sim:" not in done.stdout, "their file needs a YAML reader"


def test_gpu_check_says_what_is_missing(bare: dict[str, str], tmp_path: Path) -> None:
    done = python(bare, "-m", "bench", "gpu-check", "--out", str(tmp_path), "--device", "cuda:99")
    assert done.returncode == 3
    assert done.stderr.startswith("Error: cuda:99") and len(done.stderr.splitlines()) == 1


def test_a_gpu_run_is_planned(bare: dict[str, str], finished: Path) -> None:
    code = (
        "import json, sys\n"
        "from bench import store\nfrom bench.device import Device\nfrom bench.planning.plan import plan\n"
        "from bench.profile.encoding import decode\nfrom pathlib import Path\n"
        "device = decode(Device, store.read_log(Path(sys.argv[1])).header['device'], 'device')\n"
        "drafted = plan(device, lambda *asked: ('a', 'b'), 'standard')\n"
        "print(json.dumps(sorted({p.point.family for p in drafted.points})))"
    )
    done = python(bare, "-c", code, str(finished))
    assert done.returncode == 0, done.stderr
    assert {"fma", "stream", "mix", "gemm"} <= set(json.loads(done.stdout))


@pytest.mark.slow
def test_a_run_is_measured_by_children_and_kept(bare: dict[str, str], tmp_path: Path) -> None:
    done = python(bare, "-m", "tests.fake_run", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (folder,) = [path.parent for path in tmp_path.glob("*/*/samples.jsonl")]
    samples = store.read_log(folder).samples
    assert samples and {s.status for s in samples} <= {"ok", "skipped"}
    assert len({s.process for s in samples}) > 1


def test_ceilings_fits_table_and_plot_are_made(bare: dict[str, str], finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    for name in ("profile.json", "table.txt", "roofline.png"):
        (folder / name).unlink(missing_ok=True)
    for verb in ("fit", "report"):
        done = python(bare, "-m", "bench", verb, str(folder))
        assert done.returncode == 0, done.stderr
    whole, without = store.read_profile(finished), store.read_profile(folder)
    assert without.ceilings == whole.ceilings
    assert without.curves == whole.curves and any(curve.fits for curve in whole.curves)
    assert (folder / "roofline.png").stat().st_size > 10_000
