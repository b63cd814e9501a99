"""An option of the test suite: with --no-skips a skip that no mark allows is a failure."""

from __future__ import annotations

import pytest

OPTIONAL = {"gpu", "qemu"}
"""Marks of tests that may be absent: they need what not every machine has."""


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


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-skips"):
        config.pluginmanager.register(SkipWatch(), "skip-watch")
