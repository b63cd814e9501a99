"""The command line: one verb a function; everything heavy is imported by the verb that needs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from bench import arguments, streams
from bench.errors import AuditMiss, CheckFailed, UsageError
from bench.gpu import caches

if TYPE_CHECKING:
    from bench.profile.records import Profile


class Verbs(TyperGroup):
    """The verbs; whatever they raise ends as one sentence on stderr and a documented exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb of the command line; with --debug failures keep their traceback."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            sys.stdout = None  # nobody reads it: nothing to flush at exit
            raise typer.Exit(141) from None
        except (Exception, KeyboardInterrupt) as error:
            if type(error).__module__.startswith(("typer", "click")):
                raise
            raise typer.Exit(_told(error, bool(ctx.params.get("debug")))) from None


def _told(error: BaseException, debug: bool) -> int:
    """Print the one sentence (and the traceback if asked for); the exit code."""
    from bench.outcome import outcome

    if debug:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    code, sentence = outcome(error)
    print(f"Error: {sentence}" if code != 130 else sentence, file=sys.stderr)
    return code


app = typer.Typer(
    cls=Verbs,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print strict JSON (docs/format.md) and nothing else.")]
Results = Annotated[Path, typer.Option(help="Folder of the result folders.", file_okay=False)]
Folder = Annotated[Path, typer.Argument(help="A result folder or its profile.json.")]
Newest = Annotated[Path | None, typer.Argument(help="A result folder; the newest one when omitted.")]
Device = Annotated[str, typer.Argument(help='A device or a part of its name: "H100 PCIe". All when omitted.')]
Plot = Annotated[Path | None, typer.Option(help="Draw the roofs: FILE.svg and FILE.png.")]
Simulated = Annotated[bool, typer.Option("--allow-simulated", help="Go on with a simulated profile, marked.")]


_show = streams.show


def _version(asked: bool) -> None:
    if asked:
        from bench.profile.records import SCHEMA_VERSION, TOOL_VERSION

        print(f"empirical-roofline {TOOL_VERSION} (schema {SCHEMA_VERSION})")
        raise typer.Exit


@app.callback()
def program(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Measure the real roofline of this machine and place real workloads on it."""


@app.command()
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
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
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
    )
    table = remake.report(folder)
    _show_result(folder, table, as_json)
    progress.Screen(quiet).say(f"table, plot and samples: {folder}")
    if strict:
        arguments.check_converged(_profile(folder))


@app.command()
def devices(as_json: Json = False) -> None:
    """List what can be measured here."""
    from bench import devices as found

    rows = found.list_devices()
    _show(as_json, {"devices": rows}, found.table(rows))


@app.command()
def fit(
    path: Annotated[Path, typer.Argument(help="A result folder, or another tool's sweep file or folder.")],
    name: Annotated[
        str, typer.Option("--format", help="csv, ert, mixbench, ...; by content if left out.")
    ] = "",
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Derive a result folder again, or fit another tool's sweeps."""
    from bench.report import refits, remake

    folder, drawn = arguments.home(path), arguments.plot_files(plot)
    if name or not arguments.is_own(path):
        _show(as_json, *refits.looked_at(path, name, drawn))
    else:
        _show_result(folder, remake.derived(folder, drawn), as_json)


@app.command()
def report(folder: Newest = None, results: Results = Path("results"), as_json: Json = False) -> None:
    """Remake table and plot from the files."""
    from bench.report import remake

    folder = arguments.home(folder or arguments.newest(results))
    _show_result(folder, remake.report(folder), as_json)


@app.command("reference")
def reference_figures(text: Device = "", as_json: Json = False) -> None:
    """List and search datasheet and published figures."""
    from bench.report import figures

    _show(as_json, *figures.looked_up(text))


@app.command()
def compare(
    a: Folder,
    b: Folder,
    plot: Plot = None,
    allow_simulated: Simulated = False,
    as_json: Json = False,
) -> None:
    """Say whether B is faster than A, ceiling by ceiling."""
    from bench import compare as comparing

    profiles = _profile(a), _profile(b)
    comparison = comparing.compare(*profiles, allow_simulated)
    if files := arguments.plot_files(plot):
        from bench.report.plot import draw

        draw(profiles, *files)
    from bench.report.comparison import render

    drawn = f"drawn: {', '.join(map(str, files))}\n" if files else ""
    _show(as_json, comparison, render(comparison) + drawn)


@app.command()
def export(
    folder: Folder,
    to: Annotated[str, typer.Option(help="csv, json, parquet or prometheus.")],
    output: Annotated[Path | None, typer.Option(help="File to write; in FOLDER when omitted.")] = None,
    allow_simulated: Simulated = False,
    as_json: Json = False,
) -> None:
    """Write the measured numbers in another tool's format."""
    from bench import exporters

    path = output or arguments.home(folder) / f"roofline{exporters.ending(to)}"
    exporters.export(_profile(folder), to, path, allow_simulated)
    _show(as_json, {"format": to, "file": path.as_posix()}, str(path))


@app.command()
def audit(
    arch: Annotated[str, typer.Option(help="Comma-separated: 80,90a,... All when omitted.")] = "",
    family: Annotated[str, typer.Option(help="Comma-separated: fma,stream,... All when omitted.")] = "",
    functions: Annotated[bool, typer.Option("--functions", help="A line for each function.")] = False,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Compile every CUDA kernel and check its machine code; needs no GPU."""
    from bench.audit import report as audit_report
    from bench.audit.survey import survey
    from bench.running.progress import Screen
    from kernels import CUDA

    found = survey(CUDA, arguments.names(family), arguments.names(arch.replace("sm_", "")), Screen(quiet))
    _show(as_json, found, audit_report.render(found, functions))
    if found.misses:
        raise AuditMiss(f"{audit_report.verdict(found)}: see the sentences above")


@app.command("gpu-check")
def gpu_check(
    device: Annotated[str, typer.Option(help="cuda:N, or sim:NAME to try the verb.")] = "cuda:0",
    out: Annotated[Path, typer.Option(envvar="OUT", help="Folder for its six files.")] = Path("results"),
    stage: Annotated[str, typer.Option(help="tests, audit, cross-check, run or checks; all in turn.")] = "",
    as_json: Json = False,
) -> None:
    """Check on a GPU what only a GPU can show, in under five minutes."""
    from bench.gpucheck import verb

    streams.end_like_ctrl_c()
    record = verb.check_gpu(device, out, stage, (lambda line: None) if as_json else print)
    if as_json:
        _show(as_json, record.value(), "")
    if record.failed:
        what = f"{len(record.failed)} checks failed ({', '.join(record.failed)[:200]})"
        raise CheckFailed(f"{what}: {record.folder / verb.TABLE} has them all, {verb.RECORD} the reasons")


@app.command()
def laws(
    folder: Newest = None,
    results: Results = Path("results"),
    pi: Annotated[str, typer.Option(help='Peak rate: FLOP/s, or "91.3 GFLOP/s".')] = "",
    beta: Annotated[str, typer.Option(help='Bandwidth: byte/s, or "20 GB/s".')] = "",
    overlap: Annotated[float | None, typer.Option(help="Overlap at the ridge, 0 to 1.")] = None,
    overhead: Annotated[float | None, typer.Option(help="T0 of one launch in seconds.")] = None,
    precision: Annotated[str, typer.Option(help="Whose pi to take from FOLDER.")] = "fp64",
    mode: Annotated[str, typer.Option(help="Whose beta and overlap: read-only or in-place.")] = "read-only",
    intensity: Annotated[float | None, typer.Option(help="FLOP/byte; the ridge when omitted.")] = None,
    flops: Annotated[float | None, typer.Option(help="FLOP of one launch, so that T0 counts.")] = None,
    movement: Annotated[float | None, typer.Option(help="Seconds of movement alone.")] = None,
    compute: Annotated[float | None, typer.Option(help="Seconds of compute alone.")] = None,
    factor: Annotated[list[float] | None, typer.Option(help="Factor s, repeatable; 3 and 9.")] = None,
    as_json: Json = False,
) -> None:
    """Say what raising pi, beta or I, or lowering T0, buys."""
    from bench import laws as model
    from bench.report import ways

    timed = movement is not None or compute is not None
    if (pi or beta) and folder is not None:
        raise UsageError("give a FOLDER or --pi and --beta, not both")
    if timed and (pi or beta or intensity is not None or flops is not None):
        raise UsageError("--movement and --compute stand alone: leave out --pi, --beta, --intensity, --flops")
    roof = None
    if pi or beta:
        roof = model.given_roof(pi, beta, overhead)
    elif folder is not None or not timed:
        roof = model.measured_roof(_profile(folder or arguments.newest(results)), precision, mode, overhead)
    known = model.given_overlap(overlap) or (roof.omega if roof else None)
    if timed or roof is None:
        job, at = model.timed_job(movement, compute, overhead), None
    else:
        at = roof.ridge if intensity is None else intensity
        job = model.placed_job(roof, at, flops)
    found = model.ways_up(job, model.factors(factor or (3.0, 9.0)), known)
    parts = (job, found, known, None if timed else roof, at)
    _show(as_json, ways.record(*parts), ways.render(*parts))


def _profile(path: Path) -> Profile:
    from bench import store

    return store.read_profile(path)


def _show_result(folder: Path, text: str, as_json: bool) -> None:
    value = {"folder": folder.as_posix(), "profile": _profile(folder)} if as_json else None
    _show(as_json, value, text)


def main(given: list[str] | None = None) -> None:
    """Run the command line; --debug may stand anywhere in it."""
    streams.secure()
    caches.use()
    words = list(sys.argv[1:] if given is None else given)
    debug = ["--debug"] if "--debug" in words else []
    try:
        app(args=[*debug, *(word for word in words if word != "--debug")], prog_name="python -m bench")
    except OSError as error:  # help that cannot be printed
        raise SystemExit(_told(error, bool(debug))) from None
