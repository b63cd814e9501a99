"""What an SM can do a clock and a memory bus a second in theory, by compute capability, with the sources."""

from __future__ import annotations

import re
from collections.abc import Mapping

SOURCES = {
    "g": "CUDA C++ programming guide, arithmetic throughput and multiprocessor sections",
    "p": "architecture white paper",
    "s": "data sheet's dense rate / (SMs x boost clock)",
    "i": "issue rate in machine code by ptxas 13.0",
}

TRANSFERS_PER_CLOCK = 2
"""Of every memory kind: the clock that NVML and CUDA name is half of the data rate a pin has."""

HALVED = ("fp16>fp32 matrix", "bf16>fp32 matrix", "fp32 matrix tf32", "fp8>fp32 matrix")
"""What GeForce boards do at half the rate of the same chip on professional boards: fp32 accumulation."""

HALF_RATE = {r"geforce": "on GeForce boards", r"\bl40\b": "by the L40's data sheet (181 TFLOP/s in bf16)"}
"""Boards that do so, by their names in small letters, and how that is known. The data sheets of L4, L40S,
A10, A40, T4 and RTX PRO 6000 give the whole rate; of other professional boards none is at hand."""

HALVED_CAPABILITIES = (75, 86, 89, 120)

TURING = 75
"""The capability of chips with Tensor Cores (TU102, TU104, TU106) and without (TU116, TU117). These run the
instructions of matrix units all the same, on other units and more slowly."""

WITH_UNITS = r"\brtx\b|\bt(4g?|10|40)\b"
WITHOUT_UNITS = r"\bgtx 16\d\d|\bmx ?[45]50\b|\bt(400|500|550|600|1000|1200|2000)\b"
"""Names of Turing boards in small letters: with and without Tensor Cores. No other name tells."""

TABLE = """
                      7.0    7.5    8.0    8.6    8.7    8.9    9.0   10.0   10.3   11.0   12.0
fp64                  64g     4g    64g     4g     4g     4g   128g   128g     4s      ?     4g
fp32                 128g   128g   128g   256g   256g   256g   256g   256g   256g   256g   256g
fp16                 256g   256g   512g   256g      ?   256g   512g   256i   256i      ?   256i
bf16                   0g     0g   256g   256g      ?   256g   512g   256i   256i      ?   256i
int32                128g   128g   128g   128g   128g   128g   128g   128i   128i      ?   128i
int8>int32              ?   512i   512i   512i      ?   512i   512i   512i   512i      ?   512i
fp16>fp32 matrix    1024p  1024p  2048p  1024p  2048p  1024s  4096p  8192s  8192s      ?  1024s
fp16 matrix         1024p  1024p  2048p  1024p  2048p  1024s  4096p  8192s  8192s      ?  1024s
bf16>fp32 matrix       0p     0p  2048p  1024p  2048p  1024s  4096p  8192s  8192s      ?  1024s
fp32 matrix tf32       0p     0p  1024p   512p  1024p   512s  2048p  4096s  4096s      ?   512s
int8>int32 matrix      0p  2048p  4096p  2048p  4096p  2048s  8192p 16384s     0s      ?  2048s
fp64 matrix            0p     0p   128p     0p     0p     0p   256p   128s     0s      ?     0s
fp8>fp32 matrix        0p     0p     0p     0p     0p  2048s  8192p 16384s 16384s      ?  2048s
fp4>fp32 matrix        0p     0p     0p     0p     0p     0p     0p 32768s     0s      ?  4096s
"""
"""FLOP (OP of integers) a clock of one SM, a multiply-add counting 2, by compute capability.

The letter names the source. 0: no such unit, or its rate is published nowhere, and nothing is guessed.
?: not known; the next lower capability of the same major stands in, said as "fallback".
"""


def _rows(table: str) -> dict[str, dict[int, tuple[int, str]]]:
    """{label: {capability x 10: (rate, source)}}."""
    header, *lines = table.strip().splitlines()
    capabilities = [round(float(word) * 10) for word in header.split()]
    return {
        " ".join(words[: -len(capabilities)]): {
            cc: (int(word[:-1]), SOURCES[word[-1]])
            for cc, word in zip(capabilities, words[-len(capabilities) :], strict=True)
            if word != "?"
        }
        for words in (line.split() for line in lines)
    }


RATES: Mapping[str, Mapping[int, tuple[int, str]]] = _rows(TABLE)

LABELS = tuple(RATES)


def has_matrix_units(compute_capability: int, board: str) -> bool | None:
    """Whether a GPU has matrix units (Tensor Cores), None where its name does not tell.

    compute_capability: x 10;  board: its name
    """
    if compute_capability != TURING:
        return compute_capability >= 70
    name = board.lower()
    return True if re.search(WITH_UNITS, name) else False if re.search(WITHOUT_UNITS, name) else None


def units_lacking(compute_capability: int, board: str) -> str:
    """Why a rate of matrix instructions is none of matrix units, or may be none; "" where it is one."""
    there = has_matrix_units(compute_capability, board)
    if there is None:
        return (
            f"unknown whether {board!r} has Tensor Cores: boards of capability {compute_capability / 10:.1f} "
            "exist with and without"
        )
    return "" if there else f"{board} has no Tensor Cores: other units do the work of their instructions"


def flops_per_clock_per_sm(
    compute_capability: int, precision_label: str, board: str = ""
) -> tuple[int | None, str]:
    """FLOP a clock and SM of a precision, with its source; (None, why not) where it is not known.

    compute_capability: x 10;  precision_label: as Precision.label of the unit that does the work
    board: its name; those of HALF_RATE halve the matrix rates with fp32 accumulation, and of Turing only
    some have matrix units. Without a name the chip is meant that has them
    An unknown capability takes the nearest lower of its major; the note then says "fallback".
    """
    table = RATES.get(precision_label)
    if table is None:
        return None, f"no rate is known for {precision_label!r}; known: {', '.join(LABELS)}"
    near = [cc for cc in table if cc <= compute_capability and cc // 10 == compute_capability // 10]
    if not near:
        return None, f"no {precision_label} rate is known for capability {compute_capability / 10:.1f}"
    rate, source = table[max(near)]
    note = source if max(near) == compute_capability else f"fallback to {max(near) / 10:.1f}: {source}"
    if rate == 0:
        return None, f"no {precision_label} rate to compare with ({note})"
    if board and " matrix" in precision_label and (lacking := units_lacking(compute_capability, board)):
        return None, lacking
    if precision_label in HALVED and max(near) in HALVED_CAPABILITIES:
        return _halved(rate, note, board)
    return rate, note


def _halved(rate: int, note: str, board: str) -> tuple[int, str]:
    for name, why in HALF_RATE.items():
        if re.search(name, board.lower()):
            return rate // 2, f"{note}; halved with fp32 accumulation {why}"
    return rate, f"{note}; GeForce boards do half of it with fp32 accumulation"


def bus_bytes_per_second(bits: int | None, clock_hz: float | None) -> float | None:
    """Byte/s of a memory bus at the clock that NVML or CUDA names, None where one is not known."""
    return bits / 8 * clock_hz * TRANSFERS_PER_CLOCK if bits and clock_hz else None
