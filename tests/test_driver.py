"""Which wheels a GPU needs, told from nvidia-smi as it prints and from the files of the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import driver
from bench.driver import Found, extra

H200 = (("NVIDIA H200", (9, 0)),)

SMI = """#!/bin/sh
case "$1" in
*compute_cap*) {capable} ;;
--query*) echo "{version}, {name}" ;;
*) printf '| NVIDIA-SMI {version}   Driver Version: {version}   {cuda} |\\n' ;;
esac
"""


def smi(folder: Path, version: str, name: str, capability: str = "", cuda: str = "") -> str:
    """A program that answers like nvidia-smi."""
    capable = f'echo "{version}, {capability}, {name}"' if capability else "echo no such field >&2; exit 2"
    program = folder / "nvidia-smi"
    program.write_text(SMI.format(capable=capable, version=version, name=name, cuda=cuda))
    program.chmod(0o755)
    return str(program)


def files(root: Path, version: str = "", model: str = "", jetson: str = "") -> str:
    """The driver's own files below a root."""
    if version:
        (root / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
        line = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n"
        (root / "proc/driver/nvidia/version").write_text(line + "GCC version: gcc version 13.3.0\n")
        (root / "proc/driver/nvidia/gpus/0000:01:00.0/information").write_text(
            f"Model: \t\t {model}\nIRQ: 1\n"
        )
    if jetson:
        (root / "etc").mkdir(parents=True)
        (root / "etc/nv_tegra_release").write_text(f"# R{jetson} (release), REVISION: 4.3, GCID: 1\n")
    return str(root)


@pytest.mark.parametrize(
    ("found", "wanted", "why"),
    [
        (Found(), "", "no NVIDIA driver found"),
        (Found("580.65.06", "13.0", H200), "cuda13", "NVIDIA H200 (9.0), driver 580.65.06, CUDA 13.0"),
        (Found("580.65.06", "", H200), "cuda13", "NVIDIA H200 (9.0), driver 580.65.06"),
        (Found("570.86.10", "12.8", H200), "cuda12", "CUDA 12.8"),
        (Found("550.54.15", "", H200), "cuda12", "driver 550.54.15"),
        (Found("525.60.13", "12.0", H200), "cuda12", "CUDA 12.0"),
        (Found("470.82.01", "11.4", H200), "", "too old for the CUDA 12 wheels: they need 525"),
        (
            Found("580.65.06", "13.0", (("Tesla V100-SXM2-16GB", (7, 0)),)),
            "cuda12",
            "below compute capability 7.5",
        ),
        (Found("580.65.06", "13.0", (*H200, ("NVIDIA TITAN V", (7, 0)))), "cuda12", "TITAN V (7.0) is below"),
        (Found("580.65.06", "13.0", (("Tesla T4", (7, 5)),)), "cuda13", "Tesla T4 (7.5)"),
        (Found("580.65.06", "13.0", (("Tesla P100", (6, 0)),)), "", "below compute capability 7.0"),
        (Found("580.65.06", "", (("Tesla V100-PCIE-32GB", ()),)), "cuda12", "below compute capability 7.5"),
        (Found("580.65.06", "", (("NVIDIA GeForce GTX 1660", ()),)), "cuda13", "GTX 1660"),
        (Found("580.65.06", "", (("NVIDIA GeForce GTX 1080 Ti", ()),)), "cuda12", "GTX 1080 Ti is below"),
        (Found("580.65.06", "13.0"), "", "driver 580.65.06 shows no GPU"),
        (Found(jetson="36"), "cuda12", "Jetson Linux R36 has CUDA 12"),
        (Found("580.00", "13.0", (("NVIDIA Thor", (11, 0)),), jetson="38"), "cuda13", "Jetson Linux R38"),
        (Found(jetson="35"), "", "Jetson Linux R35 is too old"),
    ],
)
def test_the_extra_follows_from_driver_and_compute_capability(found: Found, wanted: str, why: str) -> None:
    picked, said = extra(found)
    assert picked == wanted
    assert why in said


@pytest.mark.parametrize("line", ["CUDA Version: 13.0", "CUDA UMD Version: 13.0"])
def test_what_nvidia_smi_prints(line: str, tmp_path: Path) -> None:
    found = driver.by_smi(smi(tmp_path, "580.65.06", "NVIDIA H200", "9.0", line))
    assert (found.driver, found.cuda, found.gpus) == ("580.65.06", "13.0", H200)


def test_an_old_nvidia_smi_knows_no_compute_capability(tmp_path: Path) -> None:
    found = driver.by_smi(smi(tmp_path, "470.82.01", "Tesla V100", cuda="CUDA Version: 11.4"))
    assert (found.driver, found.cuda, found.gpus) == ("470.82.01", "11.4", (("Tesla V100", ()),))


def test_a_nvidia_smi_that_fails_or_talks_leaves_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "nvidia-smi"
    broken.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed: is the driver running?'\nexit 0\n")
    broken.chmod(0o755)
    monkeypatch.setattr(driver, "smi", lambda: str(broken))
    found = driver.look(files(tmp_path / "root", "575.57.08", "NVIDIA L4"))
    assert (found.driver, found.cuda, found.gpus) == ("575.57.08", "", (("NVIDIA L4", ()),))
    assert extra(found)[0] == "cuda12"


def test_a_machine_with_nothing_and_a_jetson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "smi", lambda: "")
    assert extra(driver.look(str(tmp_path))) == ("", "no NVIDIA driver found")
    assert extra(driver.look(files(tmp_path / "jetson", jetson="36")))[0] == "cuda12"


def test_the_mark_changes_with_driver_and_gpus_and_asks_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "smi", lambda: "")
    monkeypatch.setattr(driver, "ask", lambda words: pytest.fail("no program may be asked"))
    roots = [
        str(tmp_path),
        files(tmp_path / "a", "580.65.06", "NVIDIA H200"),
        files(tmp_path / "b", "580.95.05", "NVIDIA H200"),
        files(tmp_path / "c", "580.95.05", "NVIDIA L4"),
    ]
    marks = [driver.mark(root) for root in roots]
    assert len(set(marks)) == 4
    assert driver.mark(roots[1]) == marks[1]
