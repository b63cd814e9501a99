"""A whole run: open the device, plan, measure inside the time box, derive the profile; or go on with one."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import provenance
from bench.device import Device
from bench.errors import FileError, UsageError
from bench.planning import sizes
from bench.planning.plan import FAMILIES, PRESETS, Plan, plan, preset_for, threads_of
from bench.planning.timebox import TimeBox
from bench.profile.encoding import FormatError, decode, plain
from bench.profile.records import SCHEMA_VERSION, TOOL_VERSION, Point, Precision
from bench.report.units import counted
from bench.running import second
from bench.running.campaign import FINISHED, Campaign
from bench.running.opening import (
    automatic,
    check_packages,
    open_device,
    remarks,
    with_peer,
    with_scratch,
)
from bench.running.progress import Screen, duration
from bench.running.runners import InProcess, Runner
from bench.store import Store, Taken, read_log, write_profile

SIMULATED_SAMPLES, FEWEST_SIMULATED, MOST_SIMULATED = 1000, 10, 30
"""Samples of a simulated run, and its rounds: they cost no device time, and an interval that decides after
five rounds whether more are wanted covers 0.925 of the truths instead of 0.95 (from ten on: 0.945)."""

RESUMED_SHARE = 0.5
"""A resumed run gets what is left of its time box, but at least this share of it."""


@dataclass(frozen=True)
class Options:
    """What was asked for; kept in the header, so that a resumed run needs no flags.

    memory: available when the run began (byte); sizes follow from it, so it stays as it was
    blocker: whether launches on a GPU wait behind a kernel until all are queued
    cross_check: whether a second implementation measures the same at the end
    """

    device: str
    minutes: float
    preset: str
    threads: int | None = None
    precisions: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    workloads: bool = True
    seed: int = 0
    memory: float = 0.0
    blocker: bool = True
    cross_check: bool = False


def run(
    device: str = "auto",
    minutes: float | None = None,
    preset: str | None = None,
    results: Path = Path("results"),
    resume: Path | None = None,
    threads: int | None = None,
    precisions: Sequence[str] | None = None,
    families: Sequence[str] | None = None,
    workloads: bool = True,
    quiet: bool = False,
    blocker: bool = True,
    cross_check: bool = False,
    scratch: Path | None = None,
    peer: str = "",
) -> Path:
    """Measure and derive; the result folder, with samples.jsonl and profile.json in it.

    resume: go on with this folder under its own options, everything else but `scratch` and `peer` is ignored
    scratch: folder for the files whose reading and writing is timed; where the results go when omitted
    peer: TOKEN@HOST:PORT of `python -m bench peer` on another node
    KeyboardInterrupt carries the command that goes on; BenchError is everything foreseen.
    """
    screen = Screen(quiet)
    if resume is not None:
        options = _options_of(resume)
        found, runner = _reopened(resume, options)
    else:
        chosen = preset_for(3.0 if minutes is None else minutes) if preset is None else preset
        if chosen not in PRESETS:
            raise UsageError(f"unknown preset {chosen!r}; valid: {', '.join(PRESETS)}")
        box = PRESETS[chosen].minutes if minutes is None else minutes
        seed = int.from_bytes(os.urandom(4), "big")
        named = automatic(screen.say) if device == "auto" else device
        asked = (tuple(precisions or ()), tuple(families or ()), workloads, seed)
        options = Options(named, box, chosen, threads, *asked, blocker=blocker, cross_check=cross_check)
        found, runner = open_device(options.device, options.blocker)
        check_packages(found)
        second.check_asked(found, options.cross_check, options.blocker)
        options = replace(options, device=found.id, memory=_available(found, runner))
    found = with_scratch(found, runner, scratch or resume or results, scratch is not None)
    found = with_peer(found, runner, peer)
    timebox = TimeBox(runner.now, 60 * options.minutes)
    try:
        drafted = _plan(found, runner, options)
        store = _resumed(resume, found) if resume else _created(results, found, options, drafted)
        with store:
            if any(note.get("text") == FINISHED for note in store.notes):
                screen.say(
                    f"{store.folder} is finished; measuring on until it pleases would spoil its intervals"
                )
            else:
                campaign = Campaign(runner, store, timebox, drafted, screen, options.seed)
                _measure(campaign, found, resume is not None)
                if options.cross_check:
                    runner.close(kill=True)
                    screen.say("cross-check: the same kernels by a second implementation, in turn")
                    store.append_note(**second.cross_check(found, options.blocker, screen.say))
            _derive(store)
            return store.folder
    finally:
        screen.end()
        runner.close(kill=True)


def _reopened(folder: Path, options: Options) -> tuple[Device, Runner]:
    """The device of `folder`; a simulated one from its record, though its file be gone or changed."""
    header = read_log(folder).header
    if not header.get("simulated"):
        return open_device(options.device, options.blocker)
    from bench.backends.simulated import SimulatedBackend

    backend = SimulatedBackend.again(decode(Device, header["device"], "device"))
    return backend.device, InProcess(backend)


def _available(device: Device, runner: Runner) -> float:
    """Bytes that may be counted on now."""
    known = (runner.conditions().get("memory_available_bytes"), device.facts.get("free_bytes"))
    available = next(filter(None, known), device.memory_bytes)
    return float(min(available, device.memory_bytes))


def _plan(device: Device, runner: Runner, options: Options) -> Plan:
    families = options.families or FAMILIES
    wanted = [f for f in families if options.workloads or f != "workload"]
    zoo = workload_points(device, options) if "workload" in wanted else ()
    runner.open(0)
    drafted = plan(
        device,
        runner.variants,
        options.preset,
        options.threads,
        options.precisions,
        wanted,
        zoo,
        options.memory,
    )
    if device.kind == "simulated" and not device.is_gpu:
        visits = sum(planned.visits for planned in drafted.points)
        rounds = min(MOST_SIMULATED, max(FEWEST_SIMULATED, SIMULATED_SAMPLES // max(1, visits)))
        return replace(drafted, preset=replace(drafted.preset, rounds=rounds, least_rounds=FEWEST_SIMULATED))
    return drafted


def workload_points(device: Device, options: Options) -> tuple[Point, ...]:
    """The workloads in the precisions asked for, at the sizes that fit this device."""
    if device.is_gpu:
        return _on_gpu(device, options)
    from bench.workloads.zoo import ZOO

    points, threads = [], threads_of(device, options.threads)
    for name, work in ZOO.items():
        if options.precisions and work.precision not in options.precisions:
            continue
        sized = work.sizes(options.memory, device.last_level_cache_bytes, threads)
        precision = Precision.of(work.precision)
        implementation = "simulated" if device.kind == "simulated" else work.implementation
        point = Point("workload", name, implementation, precision, "DRAM", threads=threads)
        points.append(replace(point, sizes=sized))
        if (near := sizes.near_level(device, threads)) and options.preset != "quick":
            level, operand_bytes = near
            if sized_near := work.near_sizes(operand_bytes, threads):
                points.append(replace(point, level=level, sizes=sized_near))
    return tuple(points)


def _on_gpu(device: Device, options: Options) -> tuple[Point, ...]:
    from bench.workloads import on_gpu

    found = on_gpu.points(options.memory, device.last_level_cache_bytes, device.threads)
    wanted = (p for p in found if not options.precisions or p.precision.inputs in options.precisions)
    return tuple(replace(p, variant="simulated") if device.kind == "simulated" else p for p in wanted)


def identity(device: Device) -> dict[str, Any]:
    """What must match before samples are combined; the device's own part, the tool and the format."""
    source = provenance.source_hash()
    return {**plain(device.identity), "source": source, "schema_version": SCHEMA_VERSION}


def _created(results: Path, device: Device, options: Options, drafted: Plan) -> Store:
    origin = provenance.provenance(sys.argv)
    header = {
        "schema_version": SCHEMA_VERSION,
        "tool_version": TOOL_VERSION,
        "identity": identity(device),
        "provenance": origin,
        "device": plain(device),
        "simulated": device.kind == "simulated",
        "plan": {
            "options": plain(options),
            "rounds": drafted.preset.rounds,
            "points": len(drafted.points),
            "pilot": len(drafted.pilot),
        },
        "not_measured": list(drafted.notes),
    }
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    folder = results / f"{device.slug}-{device.state}" / f"{stamp}-{origin['label']}"
    for again in range(2, 100):  # jobs of an array begin in the same second on equal devices
        try:
            return Store.create(folder, header)
        except Taken:
            folder = folder.with_name(f"{stamp}-{origin['label']}-{again}")
    return Store.create(folder, header)


def _options_of(folder: Path) -> Options:
    try:
        return decode(Options, read_log(folder).header["plan"]["options"], "options")
    except (KeyError, TypeError, FormatError) as error:
        raise FileError(f"{folder} does not say how it was run ({error}): start a new run") from None


def _resumed(folder: Path, device: Device) -> Store:
    """The store of `folder`, refused in words when it is another tool's or another device's."""
    store = Store.open(folder)
    before, here = dict(store.header["identity"]), identity(device)
    if before.get("source") != here["source"]:
        store.close()
        raise FileError(
            f"{folder} was measured by another version of this tool (source {before.get('source')}, now "
            f"{here['source']}): check that version out to go on with it, or start a new run"
        )
    differing = sorted(k for k in {*before, *here} if before.get(k) != here.get(k))
    if differing:
        store.close()
        told = "; ".join(f"{k}: {_short(before.get(k))}, here {_short(here.get(k))}" for k in differing)
        raise FileError(f"{folder} was measured on another device ({told}): start a new run here")
    return store


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 60 else text[:57] + "..."


def _measure(campaign: Campaign, device: Device, resumed: bool) -> None:
    """Say what is going to happen, then do it; an interruption keeps everything and says how to go on."""
    screen, box, store = campaign.screen, campaign.box, campaign.store
    simulated = "SIMULATED, no hardware is measured: " if device.kind == "simulated" else ""
    screen.say(
        f"{simulated}{device.name}, {counted(campaign.plan.threads, device.unit)}, into {store.folder}"
    )
    for remark in remarks(device, campaign.runner.conditions()) if device.is_gpu or not simulated else ():
        screen.say(f"  note: {remark}")
    if resumed:
        spent = sum(float(s.facts.get("wall_seconds", 0.0)) for s in store.samples)
        box.seconds = max(box.seconds - spent, RESUMED_SHARE * box.seconds)
        screen.say(f"  resumed: {len(store.samples)} samples are kept, {duration(box.seconds)} at most to go")
    try:
        campaign.run()
    except KeyboardInterrupt:
        screen.end()
        campaign.runner.close(kill=True)
        raise _stopped(store) from None


def _derive(store: Store) -> None:
    from bench.fitting.ceilings import derive

    try:
        write_profile(store.folder, derive(store.header, store.conditions, store.samples))
    except KeyboardInterrupt:
        raise _stopped(store) from None


def _stopped(store: Store) -> KeyboardInterrupt:
    """What an interruption says: what is kept, by the file, and the command that goes on."""
    kept = len(read_log(store.folder).samples)  # one may be written that memory does not know of yet
    again = f"python -m bench run --resume {shlex.quote(str(store.folder))}"
    return KeyboardInterrupt(f"{kept} samples are kept in {store.folder}; go on with: {again}")
