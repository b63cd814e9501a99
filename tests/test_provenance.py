"""Where a result comes from: commit, dirt, source hash; and nothing that names a person or a machine."""

from __future__ import annotations

import getpass
import json
import re
import socket
import subprocess
from pathlib import Path

import pytest

from bench import provenance


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, "-C", str(folder), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small repository shaped like ours, with one commit."""
    top = tmp_path / "suite"
    for path in ("bench/a.py", "kernels/b.py", "README.md", "results/old/table.txt"):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(path)
    git(tmp_path, "init", "-q", str(top))
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "first")
    return top


def test_commit_is_seven_digits_of_head(checkout: Path) -> None:
    assert provenance.commit(checkout) == git(checkout, "rev-parse", "HEAD")[:7]
    assert provenance.provenance([], checkout)["label"] == provenance.commit(checkout)


def test_results_do_not_make_a_checkout_dirty(checkout: Path) -> None:
    (checkout / "results/old/table.txt").write_text("measured again")
    (checkout / "results/new").mkdir()
    (checkout / "results/new/samples.jsonl").write_text("{}")
    (checkout / "notes.txt").write_text("untracked, and Python cannot import it")
    assert not provenance.commit(checkout).endswith("-dirty")


@pytest.mark.parametrize("path", ["README.md", "bench/a.py", "bench/new.py", "kernels/new.py"])
def test_changed_and_importable_files_do(checkout: Path, path: str) -> None:
    (checkout / path).write_text("changed")
    assert provenance.commit(checkout).endswith("-dirty")


def test_a_tarball_has_a_source_hash_for_a_name(checkout: Path) -> None:
    (checkout / ".git").rename(checkout / "gone")
    assert provenance.commit(checkout) == ""
    assert provenance.provenance([], checkout)["label"] == "src" + provenance.source_hash(checkout)[:7]


def test_another_repository_around_the_checkout_is_not_ours(checkout: Path) -> None:
    inner = checkout / "unpacked"
    (inner / "bench").mkdir(parents=True)
    (inner / "bench/a.py").write_text("x")
    assert provenance.commit(inner) == ""


def test_no_git_program(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance.commit(checkout) == ""


def test_source_hash_moves_with_python_files_of_bench_and_kernels_only(checkout: Path) -> None:
    before = provenance.source_hash(checkout)
    assert re.fullmatch(r"[0-9a-f]{12}", before)
    (checkout / "README.md").write_text("other words")
    (checkout / "bench/data.yaml").write_text("x: 1")
    assert provenance.source_hash(checkout) == before
    (checkout / "kernels/b.py").write_text("other code")
    changed = provenance.source_hash(checkout)
    assert changed != before
    (checkout / "kernels/b.py").rename(checkout / "kernels/c.py")
    assert provenance.source_hash(checkout) not in (before, changed)


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("run", "run"),
        ("--out=/data/alice/x/run.json", "--out=run.json"),
        ("sim:/data/alice/dev.yaml", "sim:dev.yaml"),
        ("/data/alice smith/results/", "results"),
        ("../alice/results", "results"),
        ("--pair=/a/alice:b,/c/d", "--pair=d"),
        ("0011223344556677@node7.site:18515", "PEER"),
        ("--peer=0011223344556677@[fe80::1]:18515", "--peer=PEER"),
        ("3", "3"),
    ],
)
def test_paths_lose_their_folders(word: str, kept: str) -> None:
    assert provenance.command(["x", word]).removeprefix("python -m bench ").strip("'") == kept


def test_nothing_names_a_host_a_user_or_a_folder(tmp_path: Path) -> None:
    words = ["-m", "run", "--results", str(tmp_path / "results"), f"--device=sim:{Path.home()}/a.yaml"]
    text = json.dumps(provenance.provenance(words))
    assert str(tmp_path) not in text
    assert str(Path.home()) not in text
    assert not re.search(r'["\s=:](/|[A-Z]:\\)', text), "an absolute path"
    for name in (socket.gethostname(), getpass.getuser()):
        assert not re.search(rf"\b{re.escape(name)}\b", text)


def test_what_it_holds() -> None:
    said = provenance.provenance(["__main__.py", "run", "--minutes", "1", "--device", "sim:a b"])
    assert said["command"] == "python -m bench run --minutes 1 --device 'sim:a b'"
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", said["time"])
    assert said["source_hash"] == provenance.source_hash()
    assert set(said["packages"]) <= set(provenance.PACKAGES)
    assert said["packages"]["numpy"].split(".")[0] == "2"
    assert "no-such-package" not in provenance.versions(["no-such-package"])
