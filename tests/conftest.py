"""What all tests share: --no-skips, which fails on skips, the order of files, processes without coverage."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

OPTIONAL = {"gpu", "qemu"}
"""Marks of tests that may be absent: they need what not every machine has."""

COLLECT_AFTER = 200_000
"""New containers before cyclic garbage is looked for: among thousands of tests that takes long."""


class SkipWatch:
    """Collects the skips that nobody allowed and fails the session for them."""

    def __init__(self) -> None:
        self.unwanted: list[str] = []

    def _see(self, report: pytest.TestReport | pytest.CollectReport, marks: set[str]) -> None:
        allowed = report.nodeid.startswith("tests/gpu") or marks & OPTIONAL or hasattr(report, "wasxfail")
        if report.skipped and not allowed:
            self.unwanted.append(f"{report.nodeid}: {report.longrepr}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._see(report, set(report.keywords))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._see(report, set())

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unwanted and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.unwanted:
            terminalreporter.write_line(f"skipped without leave: {line}", red=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips", action="store_true", help="fail on skips outside tests/gpu and optional marks"
    )


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line in this process: exit code, stdout, stderr; no traceback unless asked for."""
    from bench import cli

    def called(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main([str(word) for word in words])
        said = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        assert "Traceback" not in said.err or "--debug" in words
        return stop.value.code, said.out, said.err

    return called


@pytest.fixture(scope="session")
def untraced() -> Iterator[ProcessPoolExecutor]:
    """Processes in which coverage sees nothing: for many whole runs of code that other tests cover."""
    with ProcessPoolExecutor(2, get_context("spawn"), gc.set_threshold, (COLLECT_AFTER,)) as pool:
        yield pool


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no worker begins one when the others are done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: garbage is neither sought in it nor after every 700 objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-skips"):
        config.pluginmanager.register(SkipWatch(), "skip-watch")
