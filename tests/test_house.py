"""The rules of the house: one arrow, light start-up, small named rooms, and a README that tells the truth."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bench import cli, outcome, wheels
from bench.profile.records import TOOL_VERSION

TOP = Path(__file__).resolve().parent.parent
HEAVY = ("numpy", "scipy", "pandas", "pyarrow", "matplotlib", "numba", "llvmlite", "psutil", "rich")

ROOMS = {
    "matplotlib": ("bench/report/plot.py", "bench/report/"),
    "numba": (
        "bench/native/",
        "bench/backends/cpu.py",
        "bench/backends/calls.py",
        "bench/backends/numba_",
        "bench/workloads/",
    ),
    "llvmlite": (
        "bench/native/",
        "bench/backends/cpu.py",
        "bench/backends/calls.py",
        "bench/backends/numba_",
        "bench/workloads/",
    ),
    "scipy": ("bench/backends/", "bench/workloads/"),
    "cupy": ("bench/backends/cuda.py",),
    "pyarrow": ("bench/exporters/", "bench/importers/"),
    "pandas": ("bench/exporters/", "bench/importers/"),
}
"""Where each heavy package may be imported; nowhere else."""

FORBIDDEN = {"util", "utils", "helper", "helpers", "common", "core", "manager", "base", "misc", "stuff"}


def python_files(*folders: str) -> list[Path]:
    """Python files of the checkout below `folders`."""
    return sorted(
        p for folder in folders for p in (TOP / folder).rglob("*.py") if "__pycache__" not in p.parts
    )


def rel(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path, at_import: bool = False) -> Iterator[str]:
    """Dotted names that a file imports, relative ones as .name; with at_import none inside functions."""
    for node in at_top(tree(path)) if at_import else ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield origin
            yield from (origin + "." * bool(node.module) + alias.name for alias in node.names)


def at_top(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs when the file is imported: function bodies do not."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_top(child)


def outer(name: str) -> str:
    return name.split(".")[0]


# one arrow


@pytest.mark.parametrize("path", python_files("kernels"), ids=rel)
def test_kernels_import_nothing_of_ours_and_the_standard_library_at_import_time(path: Path) -> None:
    everywhere = {outer(n) for n in imports(path) if not n.startswith(".")}
    assert not everywhere & {"bench", "tests"}
    at_import = {outer(n) for n in imports(path, at_import=True) if not n.startswith(".")}
    assert at_import <= sys.stdlib_module_names | {"kernels"}


@pytest.mark.parametrize("path", python_files("bench/profile"), ids=rel)
def test_profile_is_pure_and_could_be_lifted_out(path: Path) -> None:
    names = set(imports(path))
    assert not [n for n in names if n.startswith("..")], "an import that leaves the folder"
    assert {outer(n) for n in names if not n.startswith(".")} <= sys.stdlib_module_names


@pytest.mark.parametrize("path", python_files("bench"), ids=rel)
def test_no_arrow_runs_back(path: Path) -> None:
    names = set(imports(path))
    assert not [n for n in names if outer(n) == "tests"]
    if rel(path) != "bench/__main__.py":
        assert not [n for n in names if n == "bench.cli" or n.startswith("bench.cli.")]
    if rel(path).startswith("bench/report/"):
        assert not [n for n in names if n.startswith(("bench.backends", "bench.native", "bench.running"))]
    if rel(path).startswith(("bench/backends/", "bench/native/", "bench/workloads/", "bench/host/")):
        above = ("bench.running", "bench.planning", "bench.store", "bench.report")
        assert not [n for n in names if n.startswith(above)]


@pytest.mark.parametrize("path", python_files("bench", "kernels"), ids=rel)
def test_heavy_packages_stay_in_their_rooms(path: Path) -> None:
    for name in {outer(n) for n in imports(path)} & set(ROOMS):
        assert rel(path).startswith(ROOMS[name]), f"{name} belongs in {', '.join(ROOMS[name])}"


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_start_up_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['bench', *{words!r}]\n"
        "try:\n    runpy.run_module('bench', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as stop:\n    code = stop.code\n"
        f"print('LOADED', code, sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "LOADED 0 []", done.stderr


# rooms


@pytest.mark.parametrize("path", python_files("bench", "kernels", "tests"), ids=rel)
def test_every_file_opens_with_a_docstring_and_has_a_name_of_the_field(path: Path) -> None:
    module = tree(path)
    if module.body or path.name != "__init__.py":
        said = ast.get_docstring(module)
        assert said and said.splitlines()[0].strip().endswith(".") and len(said.splitlines()[0]) > 20
    assert not FORBIDDEN & set(re.split(r"[_.]", path.stem))
    assert not FORBIDDEN & set(path.relative_to(TOP).parts)


@pytest.mark.parametrize("path", python_files("bench", "kernels"), ids=rel)
def test_files_and_functions_stay_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= (260 if rel(path).startswith("kernels") else 330), f"{lines} lines: split by idea"
    for name, length in function_lengths(path):
        assert length <= 50 or declares_options(path, name), f"{name} has {length} lines"


def function_lengths(path: Path) -> list[tuple[str, int]]:
    """Name and lines of every function, its docstring and decorators left out."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            found.append((node.name, (node.end_lineno or 0) - first.lineno + 2))
    return found


def declares_options(path: Path, name: str) -> bool:
    verbs = {c.callback.__name__ for c in cli.app.registered_commands if c.callback}
    return rel(path).startswith("bench/verbs/") and name in verbs


@pytest.mark.parametrize("path", python_files("bench", "kernels"), ids=rel)
def test_shares_are_printed_one_way(path: Path) -> None:
    """As in 5 %, with a space: by bench.report.units.percent, or a plain number below the report."""
    assert re.findall(r":\.\d%\}", path.read_text(encoding="utf-8")) == []


def test_most_functions_have_under_15_lines() -> None:
    lengths = [length for path in python_files("bench", "kernels") for _, length in function_lengths(path)]
    assert statistics.quantiles(lengths, n=10)[7] < 15, "the eighth decile"


# the checkout


def kept_files() -> list[Path]:
    """Files that belong to the checkout: git's list, or all outside hidden and made folders without git."""
    words = ["git", "-C", str(TOP), "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
        names = done.stdout.splitlines() if done.returncode == 0 else []
    except OSError:
        names = []
    if names:
        return [TOP / name for name in names if (TOP / name).is_file()]
    return [p for p in TOP.rglob("*") if p.is_file() and not {"__pycache__", ".venv", ".git"} & set(p.parts)]


def test_no_path_of_any_machine_in_the_checkout() -> None:
    private = re.compile(rb"(?<![\w.}])/(?:root|home|work|tmp|Users|mnt|private)/[\w.]")
    found = [
        f"{rel(p)}: {m.group().decode()}"
        for p in kept_files()
        if p.suffix not in (".png", ".parquet")
        for m in private.finditer(p.read_bytes())
    ]
    assert found == []


def test_the_top_level_is_fixed() -> None:
    allowed = {"pyproject.toml", "Makefile", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"}
    allowed |= {"bench", "kernels", "results", "tests", "docs", ".ci"}
    assert {p.relative_to(TOP).parts[0] for p in kept_files()} <= allowed


def test_set_up_installs_dependencies_and_never_the_checkout() -> None:
    text = (TOP / "pyproject.toml").read_text()
    assert re.search(r"(?m)^packages = \[\]$", text)
    assert f'version = "{TOOL_VERSION}"' in text


def test_every_dependency_is_imported_somewhere() -> None:
    named = {re.split("[^a-z0-9-]", need)[0] for need in wheels.requirements()}
    modules = {{"pyyaml": "yaml", "py-cpuinfo": "cpuinfo"}.get(name, name) for name in named}
    imported = {outer(name) for path in python_files("bench", "kernels") for name in imports(path)}
    assert {"numpy", "yaml"} <= modules and modules - imported == set()


# make


def make_verbs() -> dict[str, str]:
    """Every target of the Makefile with the words behind ##."""
    lines = (TOP / "Makefile").read_text().splitlines()
    found = [re.match(r"([a-z-]+):(?!=)[^#]*(?:## (.+))?$", line) for line in lines]
    return {f.group(1): f.group(2) or "" for f in found if f}


def test_make_has_the_verbs_each_with_its_line_and_is_silent_otherwise() -> None:
    verbs = make_verbs()
    wanted = {"help", "setup", "bench", "test", "lint", "types", "report", "perf", "clean"}
    assert wanted <= set(verbs)
    assert all(len(line) > 10 for line in verbs.values()), verbs
    shown = make("help")
    assert all(f"make {verb} " in shown and line in shown for verb, line in verbs.items())
    assert make() == shown, "help is the default"


def make(*words: str) -> str:
    done = subprocess.run(["make", *words], cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_make_hands_its_settings_on() -> None:
    shown = make("-n", "bench", "MINUTES=1", "DEVICE=sim:small-cpu", "VENV=env", "RESULTS=out")
    assert '"env/bin/python" -m bench run --minutes 1 --results "out" --device "sim:small-cpu"' in shown
    bare = make("-n", "bench", "VENV=", "PYTHON=python3", "DEVICE=")
    assert '"python3" -m bench run --minutes 3' in bare
    assert '"my env/bin/python" -m bench report' in make("-n", "report", "VENV=my env")
    assert "--device" not in bare, "an empty DEVICE leaves the choice to the suite"
    assert "--extra dev,audit" in make("-n", "test") and "--extra" not in make("-n", "bench")


# README


def readme_commands() -> list[str]:
    """Every line of a fenced sh block of the README and of its recipes, without its comment."""
    text = (TOP / "README.md").read_text() + (TOP / "docs/recipes.md").read_text()
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", text)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return list(dict.fromkeys(line for line in lines if line))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result folder of a finished simulated run."""
    results = tmp_path_factory.mktemp("results")
    words = ["--device", "sim:small-cpu", "--preset", "quick", "--no-workloads", "--quiet"]
    assert bench("run", *words, "--results", str(results)) == 0
    (profile,) = results.glob("*/*/profile.json")
    return profile.parent


def bench(*words: str) -> int:
    """Exit code of the command line in this process."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(words))
    return int(stop.value.code or 0)


def test_readme_shows_the_two_commands_first() -> None:
    assert readme_commands()[:2] == ["make bench", "make test"]


@pytest.mark.parametrize("line", [c for c in readme_commands() if "make" in c.split()])
def test_make_commands_of_the_readme(line: str) -> None:
    words = line.split()
    words = words[words.index("make") + 1 :]  # what stands before is a launcher such as srun
    known = (TOP / "Makefile").read_text() + (TOP / "bench/environment.py").read_text()
    known += (TOP / "bench/wheels.py").read_text() + (TOP / "bench/native/jit.py").read_text()
    for word in words:
        name = word.split("=")[0]
        assert name in make_verbs() or ("=" in word and name in known), f"{word} is not known"
    make("-n", *words)


@pytest.mark.parametrize("line", [c for c in readme_commands() if c.startswith("python3 -m bench")])
def test_bench_commands_of_the_readme(
    line: str,
    simulated: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = line.replace("FOLDER", str(simulated)).split()[3:]
    if words[0] == "run" and "--resume" not in words and not any(w.startswith("sim:") for w in words):
        words += ["--device", "sim:small-cpu"]  # minutes of real measuring; a simulated clock is virtual
    if words[0] == "run" and "--resume" not in words:
        words += ["--families", "fma", "--no-workloads"]  # all families: the fixture
    if words[0] in ("compare", "export"):
        words.append("--allow-simulated")
    assert bench(*words) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.strip()


def test_documented_exit_codes_are_those_of_the_suite() -> None:
    part = (TOP / "docs/format.md").read_text().split("## Exit codes")[1]
    rows = re.findall(r"(?m)^\| (\d+) \| (.+) \|$", part)
    assert {int(code): words.replace("`", "") for code, words in rows} == outcome.EXIT_CODES


def test_links_of_the_documents_lead_somewhere() -> None:
    for page in (TOP / "README.md", *(TOP / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


# skips


@pytest.mark.parametrize(("mark", "code"), [("slow", 1), ("qemu", 0)])
def test_a_skip_fails_ci_unless_its_mark_allows_it(mark: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TOP / "tests/conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: x\n    qemu: x\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        f"@pytest.mark.{mark}\ndef test_a():\n    pytest.skip('no luck')\n"
        "def test_b():\n    pass\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-skips"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stdout
    assert ("skipped without leave" in done.stdout) == bool(code)
