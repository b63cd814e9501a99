"""The verb that says what a training step costs in each parallel mode, and what each trade buys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench import arguments
from bench.errors import UsageError
from bench.verbs.options import Json, Newest, Results, profile_at, show

MOST = 1e40
"""Amounts beyond it belong to no step and would overflow what follows."""


def trades(
    flops: Annotated[str, typer.Option(help='Of a step, forward and backward: 3e12, or "3 TFLOP".')],
    moved: Annotated[str, typer.Option("--bytes", help='That it moves through memory: "60 GB".')],
    parameters: Annotated[str, typer.Option(help="Number of weights: 25.6e6.")],
    activations: Annotated[str, typer.Option(help='Bytes kept from forward to backward: "8 GB".')],
    layers: Annotated[int, typer.Option(min=1, help="Layers that these belong to.")],
    folder: Newest = None,
    results: Results = Path("results"),
    boundary: Annotated[str, typer.Option(help="Bytes between two layers; activations / layers.")] = "",
    devices: Annotated[int, typer.Option(min=1, max=1 << 20, help="Devices that share the step.")] = 8,
    parallel: Annotated[str, typer.Option(help="How, for the trades: data, tensor or pipeline.")] = "data",
    micro_batches: Annotated[int | None, typer.Option(min=1, help="Of a pipeline; 4 a device.")] = None,
    precision: Annotated[str, typer.Option(help="Whose pi the step runs at.")] = "fp32",
    mode: Annotated[str, typer.Option(help="Whose beta: read-only or in-place.")] = "read-only",
    network: Annotated[str, typer.Option(help='A link of FOLDER, or its rate: "25 GB/s".')] = "",
    latency: Annotated[str, typer.Option(help='Of one message over it: "5 us".')] = "",
    beyond: Annotated[str, typer.Option(help="Where activations may go: a link, or its rate.")] = "",
    state: Annotated[float, typer.Option(min=0, help="Bytes held for a weight: 16 with Adam.")] = 16.0,
    as_json: Json = False,
) -> None:
    """Say what parallel modes and smaller data buy a training step."""
    from bench.report import trades as words
    from bench.trades import machine as machines
    from bench.trades.rows import Question
    from bench.trades.step import MODES, PIPELINE, Split, Step
    from kernels.spec import ITEM_BYTES

    if parallel not in MODES:
        raise UsageError(f"unknown --parallel {parallel!r}; valid: {', '.join(MODES)}")
    if not state < MOST:
        raise UsageError(f"--state must be zero or a positive number below {MOST:g}, got {state:g}")
    if parallel == PIPELINE and devices > layers:
        raise UsageError(
            f"{devices} devices cannot share {layers} layers as a pipeline: one layer each at least"
        )
    profile = profile_at(folder or arguments.newest(results))
    machine = machines.measured(profile, mode, network, latency, beyond)
    machines.check_precision(machine, precision)
    if devices > 1 and machine.network is None:
        raise UsageError(
            'this profile holds no link between devices: give its rate, as in --network "25 GB/s"'
        )
    kept = _amount("--activations", activations, "byte")
    step = Step(
        flops=_amount("--flops", flops, "FLOP"),
        moved=_amount("--bytes", moved, "byte"),
        parameters=_amount("--parameters", parameters, ""),
        item=float(ITEM_BYTES[machine.pi[precision].precision.inputs]),
        state=state,
        activations=kept,
        boundary=_amount("--boundary", boundary, "byte") if boundary else kept / layers,
        layers=layers,
    )
    memory = profile.facts.get("device", {}).get("memory_bytes")
    split = Split(devices, micro_batches or 4 * devices)
    question = Question(step, machine, precision, parallel, split, float(memory) if memory else None)
    show(as_json, words.record(question), words.render(question, profile.simulated))


def _amount(option: str, text: str, unit: str) -> float:
    """A positive amount; UsageError names the option."""
    value = arguments.amount(option, text, unit)
    if not 0 < value < MOST:
        raise UsageError(f"{option} must be a positive number below {MOST:g}, got {value:g}")
    return value
