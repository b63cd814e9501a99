"""The whole audit: every family compiled for every architecture in child processes, and checked."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

from bench.audit import sass, toolchain
from bench.audit.expectations import Finding, check, failed, is_made_for
from bench.audit.sass import Function
from bench.audit.toolchain import ARCHITECTURES, Build, CompileError
from bench.errors import DeviceError, UsageError
from bench.report.units import counted
from bench.running.progress import Screen
from kernels.spec import CudaFamily, CudaForm


@dataclass(frozen=True)
class Job:
    """One family for one architecture, and those of its functions that exist there."""

    name: str
    family: CudaFamily
    architecture: str
    forms: tuple[CudaForm, ...]


@dataclass(frozen=True)
class Survey:
    """What was found, in the order of the families and architectures, and what was not audited and why."""

    nvrtc: str
    nvdisasm: str
    architectures: tuple[str, ...]
    findings: tuple[Finding, ...]
    not_audited: Mapping[str, str]

    @property
    def misses(self) -> tuple[str, ...]:
        """A sentence for each way in which a function departs from what it must hold, and where it does."""
        where: dict[tuple[str, str], list[str]] = {}
        for finding in self.findings:
            for miss in finding.misses:
                where.setdefault((finding.entry, miss), []).append(f"sm_{finding.architecture}")
        return tuple(f"{entry} on {', '.join(a)}: {miss}" for (entry, miss), a in where.items())


def survey(
    families: Mapping[str, CudaFamily],
    names: Sequence[str] = (),
    architectures: Sequence[str] = (),
    screen: Screen | None = None,
) -> Survey:
    """Audit the named families (all) on the named architectures (all that the tools here can do).

    UsageError for a name that does not exist or an architecture asked for that cannot be audited here;
    DeviceError for a tool that is missing.
    """
    chosen = names or tuple(families)
    _check_names("family", chosen, tuple(families))
    _check_names("architecture", architectures, ARCHITECTURES)
    tools = toolchain.find()
    lacks = {a: tools.lack(a) for a in architectures or ARCHITECTURES}
    reasons = {architecture: reason for architecture, reason in lacks.items() if reason}
    if architectures and reasons:
        raise UsageError(f"{next(iter(reasons.values()))}; leave it out of --arch")
    ready = tuple(a for a in lacks if a not in reasons)
    jobs = _jobs({name: families[name] for name in chosen}, ready)
    if not jobs:
        raise UsageError(f"{', '.join(chosen)}: no function is made for {', '.join(ready)}; name others")
    results = _all_done(jobs, screen or Screen(True))
    reasons |= {job.architecture: why for job, (_, why) in zip(jobs, results, strict=True) if why}
    findings = tuple(finding for found, _ in results for finding in found)
    return Survey(tools.nvrtc, tools.nvdisasm, ready, findings, reasons)


def _check_names(kind: str, asked: Sequence[str], known: Sequence[str]) -> None:
    for name in asked:
        if name not in known:
            raise UsageError(f"unknown {kind} {name!r}; valid: {', '.join(known)}")


def _jobs(families: Mapping[str, CudaFamily], architectures: Sequence[str]) -> list[Job]:
    jobs = []
    for name, family in families.items():
        for architecture in architectures:
            forms = tuple(form for form in family.forms if is_made_for(form, architecture))
            if forms:
                jobs.append(Job(name, family, architecture, forms))
    return jobs


Result = tuple[list[Finding], str]
"""The findings of one job, and why its instructions could not be read, if so."""


def _all_done(jobs: Sequence[Job], screen: Screen) -> list[Result]:
    """The results in the order of the jobs."""
    workers = min(len(jobs), len(os.sched_getaffinity(0)))
    alone = ((number, examine(job)) for number, job in enumerate(jobs))
    results = alone if workers < 2 else _in_children(jobs, workers)
    found: dict[int, Result] = {}
    began = time.monotonic()
    screen.begin(f"audit: {counted(len(jobs), 'compilation')}", len(jobs))
    try:
        for number, result in results:
            found[number] = result
            left = (time.monotonic() - began) * (len(jobs) / len(found) - 1)
            screen.point(f"{jobs[number].name} sm_{jobs[number].architecture}", len(found), left)
    finally:
        screen.end()
    return [found[number] for number in range(len(jobs))]


def _in_children(jobs: Sequence[Job], workers: int) -> Iterator[tuple[int, Result]]:
    """Processes, since the compiler does one thing at a time in each, and may die of what it reads.

    The newest architectures take longest and come first.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _leave_ctrl_c) as pool:
        order = reversed(range(len(jobs)))
        waiting: dict[Future[Result], int] = {pool.submit(examine, jobs[n]): n for n in order}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BrokenProcessPool:
            raise DeviceError(
                "the CUDA compiler died or was killed: audit less at once with --family and --arch"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _leave_ctrl_c() -> None:
    """Ctrl-C is the parent's: a child would print a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def examine(job: Job) -> Result:
    """Compile, read and check the functions of one job; one that fails is halved to find the cause."""
    try:
        build = toolchain.find().build(_source(job), job.architecture)
    except CompileError as error:
        if len(job.forms) == 1:
            return [failed(job.name, job.forms[0], job.architecture, str(error))], ""
        middle = len(job.forms) // 2
        first, second = (examine(replace(job, forms=f)) for f in (job.forms[:middle], job.forms[middle:]))
        return first[0] + second[0], first[1] or second[1]
    functions = sass.parse(build.listing)
    return [_checked(job, form, functions, build) for form in job.forms], build.unread


def _checked(job: Job, form: CudaForm, functions: Mapping[str, Function], build: Build) -> Finding:
    absent = None if build.unread else Function(form.entry, (), {})
    function = functions.get(form.entry, absent)
    return check(job.name, form, job.architecture, function, build.usage.get(form.entry))


def _source(job: Job) -> str:
    return job.family.source(*(form.entry for form in job.forms))
