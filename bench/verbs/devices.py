"""Verbs on devices: measure one, list them, check the code and the machine that measure."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from bench import arguments, streams
from bench.errors import AuditMiss, CheckFailed, UsageError
from bench.verbs.options import Json, Quiet, Results, profile_at, show, show_table


def run(
    device: Annotated[str, typer.Option(help="cuda:N, cpu, auto, sim:NAME or sim:FILE.yaml.")] = "auto",
    minutes: Annotated[float | None, typer.Option(help="Time box of the whole run.")] = None,
    preset: Annotated[str | None, typer.Option(help="quick (1 min), standard (3) or full (15).")] = None,
    results: Results = Path("results"),
    resume: Annotated[Path | None, typer.Option(help="Go on with this unfinished result folder.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of the roof; all when omitted.")] = None,
    precisions: Annotated[str, typer.Option(help="Comma-separated: fp64,fp32. All when omitted.")] = "",
    families: Annotated[str, typer.Option(help="Comma-separated: fma,stream,... All when omitted.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Fail unless every ceiling converged.")] = False,
    no_workloads: Annotated[bool, typer.Option("--no-workloads", help="Place no workloads.")] = False,
    cross_check: Annotated[
        bool, typer.Option("--cross-check", help="Compare with a second GPU implementation at the end.")
    ] = False,
    no_blocker: Annotated[
        bool, typer.Option("--no-blocker", help="Queue no GPU launches behind a waiting kernel.")
    ] = False,
    scratch: Annotated[
        Path | None,
        typer.Option(
            envvar="ROOFLINE_SCRATCH", help="Folder whose storage is measured; --results when omitted."
        ),
    ] = None,
    peer: Annotated[
        str, typer.Option(envvar="ROOFLINE_PEER", help="What `peer` on another node prints.")
    ] = "",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure, fit, place and report within a time box."""
    arguments.check_box(minutes, preset)
    chosen = arguments.names(families)
    if no_workloads and chosen == ("workload",):
        raise UsageError("--no-workloads leaves nothing of --families workload: give one of the two")
    if resume is not None:
        asked = (device != "auto", minutes, preset, threads, precisions, families, no_workloads)
        given = any(value not in (None, False, "") for value in (*asked, cross_check, no_blocker))
        resume = arguments.resumable(resume, given)
    streams.end_like_ctrl_c()
    from bench.report import remake
    from bench.running import progress, suite

    folder = suite.run(
        device=device,
        minutes=minutes,
        preset=preset,
        results=results,
        resume=resume,
        threads=threads,
        precisions=arguments.names(precisions),
        families=chosen,
        workloads=not no_workloads,
        quiet=quiet,
        blocker=not no_blocker,
        cross_check=cross_check,
        scratch=scratch,
        peer=peer,
    )
    try:
        table = remake.report(folder)
    except KeyboardInterrupt:
        again = f"python -m bench report {quote(str(folder))}"
        raise KeyboardInterrupt(f"all is measured; for table and plot: {again}") from None
    show_table(folder, table, as_json)
    progress.Screen(quiet).say(f"table, plot and samples: {folder}")
    if strict:
        arguments.check_converged(profile_at(folder))


def peer(
    listen: Annotated[str, typer.Option(help="Address of this node to listen at.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 18515,
    as_json: Json = False,
) -> None:
    """Serve the other end of a network link to a run elsewhere."""
    from bench.links import node

    def told(here: str) -> None:
        line = f"python3 -m bench run --device cpu --peer {here}"
        what = (
            "is to be run on the other node; what it sends is never executed or stored, Ctrl-C ends this peer"
        )
        show(as_json, {"peer": here}, f"{line}\n{what}")
        sys.stdout.flush()

    streams.end_like_ctrl_c()
    node.serve(listen, port, told)


def devices(as_json: Json = False) -> None:
    """List what can be measured here."""
    from bench import devices as found

    rows = found.list_devices()
    show(as_json, {"devices": rows}, found.table(rows))


def audit(
    arch: Annotated[str, typer.Option(help="Comma-separated: 80,90a,... All when omitted.")] = "",
    family: Annotated[str, typer.Option(help="Comma-separated: fma,stream,... All when omitted.")] = "",
    functions: Annotated[bool, typer.Option("--functions", help="A line for each function.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile every CUDA kernel, check its code; needs no GPU."""
    from bench.audit import report as audit_report
    from bench.audit.survey import survey
    from bench.running.progress import Screen
    from kernels import CUDA

    found = survey(CUDA, arguments.names(family), arguments.names(arch.replace("sm_", "")), Screen(quiet))
    show(as_json, found, audit_report.render(found, functions))
    if found.misses:
        raise AuditMiss(f"{audit_report.verdict(found)}: see the sentences above")


def gpu_check(
    device: Annotated[str, typer.Option(help="cuda:N, or sim:NAME to try the verb.")] = "cuda:0",
    out: Annotated[Path, typer.Option(envvar="OUT", help="Folder for its six files.")] = Path("results"),
    stage: Annotated[str, typer.Option(help="tests, audit, cross-check, run or checks; all in turn.")] = "",
    as_json: Json = False,
) -> None:
    """Check on a GPU what only a GPU can show, in under five minutes."""
    from bench.gpucheck import verb

    streams.end_like_ctrl_c()
    at_once = partial(print, flush=True)  # what ends it may leave no time for what a pipe still holds
    record = verb.check_gpu(device, out, stage, (lambda line: None) if as_json else at_once)
    if as_json:
        show(as_json, record.value(), "")
    if record.failed:
        what = f"{len(record.failed)} checks failed ({', '.join(record.failed)[:200]})"
        raise CheckFailed(f"{what}: {record.folder / verb.TABLE} has them all, {verb.RECORD} the reasons")
