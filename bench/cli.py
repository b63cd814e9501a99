"""The command line: the list of verbs, and how whatever they raise ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bench import streams
from bench.gpu import caches
from bench.verbs import devices, prediction, results, trades


class Verbs(TyperGroup):
    """The verbs; whatever they raise ends as one sentence on stderr and a documented exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb of the command line; with --debug failures keep their traceback."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            from bench.outcome import BROKEN_PIPE

            sys.stdout = None  # nobody reads it: nothing to flush at exit
            raise typer.Exit(BROKEN_PIPE) from None
        except (Exception, KeyboardInterrupt) as error:
            if type(error).__module__.startswith(("typer", "click")):
                raise
            raise typer.Exit(_told(error, bool(ctx.params.get("debug")))) from None


def _told(error: BaseException, debug: bool) -> int:
    """Print the one sentence (and the traceback if asked for); the exit code."""
    from bench.outcome import told

    if debug:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    code, line = told(error)
    print(line, file=sys.stderr)
    return code


app = typer.Typer(
    cls=Verbs,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

VERBS: dict[str, Callable[..., None]] = {
    "run": devices.run,
    "devices": devices.devices,
    "peer": devices.peer,
    "fit": results.fit,
    "report": results.report,
    "reference": results.reference_figures,
    "compare": results.compare,
    "fleet": results.fleet,
    "predict": prediction.predict,
    "export": results.export,
    "audit": devices.audit,
    "gpu-check": devices.gpu_check,
    "laws": results.laws,
    "trades": trades.trades,
}
"""In the order of the help; everything heavy is imported by the verb that needs it."""

for name, verb in VERBS.items():
    app.command(name)(verb)


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
