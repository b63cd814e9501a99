"""The verb that predicts: times of work that was not measured, from a measured profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench import arguments
from bench.errors import UsageError
from bench.verbs.options import Json, Results, profile_at, show

What = Annotated[str, typer.Argument(help="gemm, or a workload (softmax, dot, ...); none with --flops.")]
Sizes = Annotated[list[str] | None, typer.Argument(help="4096x512x1024, ...; for gemm also a CSV file.")]


def predict(
    what: What = "",
    sizes: Sizes = None,
    profile: Annotated[Path | None, typer.Option(help="A result folder; the newest when omitted.")] = None,
    results: Results = Path("results"),
    flops: Annotated[str, typer.Option(help='FLOP of any work: 1e12 or "1 TFLOP".')] = "",
    moved: Annotated[str, typer.Option("--bytes", help='Bytes that it moves: 2e9 or "2 GB".')] = "",
    read_fraction: Annotated[float, typer.Option(help="Share of the bytes that is read, 0 to 1.")] = 1.0,
    level: Annotated[str, typer.Option(help="L1, L2, L3 or DRAM; by size when omitted.")] = "",
    precision: Annotated[str, typer.Option(help="fp64, fp32, fp16, ...; a workload has its own.")] = "",
    in_place: Annotated[bool, typer.Option("--in-place", help="Writes go over what was read.")] = False,
    threads: Annotated[int | None, typer.Option(help="Threads that were measured; most if omitted.")] = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")] = False,
) -> None:
    """Predict the time of a product, a workload, or FLOP and bytes."""
    counted = bool(flops or moved)
    if counted == bool(what):
        raise UsageError("give one of three: gemm with shapes, a workload with its size, or --flops, --bytes")
    if as_json and as_csv:
        raise UsageError("give --json or --csv, not both")
    if what and (in_place or read_fraction != 1.0 or (what == "gemm" and level)):
        raise UsageError("--read-fraction and --in-place belong to --flops and --bytes, --level not to gemm")
    if what and what != "gemm" and precision:
        raise UsageError(f"--precision is for gemm and --flops: {what} has its own")
    from bench.prediction import answer, asked, whose
    from bench.report import prediction as printed

    measured = profile_at(profile or arguments.newest(results))
    count = answer.threads_of(measured, threads)
    if what == "gemm":
        found = answer.gemm(measured, asked.shapes(sizes or ()), precision or "fp64", count)
    elif what:
        found = answer.zoo(measured, what, sizes or (), count, level)
    else:
        amounts = answer.Amounts(
            asked.quantity("--flops", flops or "0", "FLOP"),
            asked.quantity("--bytes", moved or "0", "byte"),
            read_fraction,
            in_place,
        )
        found = (answer.plain(measured, amounts, precision or "fp64", count, level),)
    elsewhere = whose.elsewhere(measured)
    text = printed.table(found, measured.simulated) if as_csv else printed.render(found, measured, elsewhere)
    show(as_json, printed.record(found, measured, elsewhere), text)
