"""The records that an importer fills: sweeps that somebody else measured, and the rows that it refused."""

from __future__ import annotations

from dataclasses import dataclass

from bench.profile.records import CurvePoint


@dataclass(frozen=True)
class Refused:
    """One row of a file that enters no sweep: its line number (from 1), its text, cut short, and why."""

    row: int
    text: str
    why: str


@dataclass(frozen=True)
class Sweep:
    """One intensity sweep as its file tells it.

    name: what tells it from the other sweeps of the file, "" where precision and mode do
    device, precision, mode: in the file's own terms, "" where it does not tell
    unit: of the rates, FLOP/s or OP/s (integers)
    points: x in FLOP/byte, rate in `unit`, work and seconds of one repetition, or of one byte moved where
    the file does not tell them
    """

    name: str
    device: str
    precision: str
    mode: str
    unit: str
    points: tuple[CurvePoint, ...]
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True)
class Stated:
    """A ceiling that the file states and gives no sweep for: quantity pi (FLOP/s) or beta (byte/s)."""

    name: str
    quantity: str
    value: float


@dataclass(frozen=True)
class Imported:
    """What one file, or one folder of results, holds.

    format, source: name of the format, and whose tool writes it;  device: as told by the file, "" if not
    refused: rows that belong to no sweep;  remarks: in words, what else a reader must know
    """

    format: str
    source: str
    device: str
    sweeps: tuple[Sweep, ...]
    stated: tuple[Stated, ...] = ()
    refused: tuple[Refused, ...] = ()
    remarks: tuple[str, ...] = ()
