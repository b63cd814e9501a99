"""Which loads of a loop wait for one another: the chains of a pointer chase, found in its machine code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bench.native.isa import Isa

Instruction = tuple[str, str]  # mnemonic, operands

X86_NO_RESULT = ("cmp", "test", "j", "nop")
ARM_NO_RESULT = ("cmp", "b.", "cb", "tb", "nop", "st")


@dataclass(frozen=True)
class Access:
    """One instruction as far as chains go: registers or memory places `read` into `written`, one for one.

    A place is a register name, or (base register, displacement).
    """

    read: tuple[Place, ...]
    written: tuple[Place, ...]


Place = str | tuple[str, str]


def chains(body: tuple[Instruction, ...], isa: Isa) -> Counter[str]:
    """Of one trip of a loop: `pointer` loads (from where another load pointed), loads and stores of slots.

    A slot is memory at a register that the loop never changes. `depth N` counts the registers and slots
    whose content at the end is N pointer loads away from one at the start: as many as there are chains.
    """
    accesses = [a for i in body for a in (_x86(*i) if isa.x86 else _arm(*i))]
    changed = {place for a in accesses for place in a.written if isinstance(place, str)}
    depth: dict[Place, int] = {}
    found: Counter[str] = Counter()
    for access in accesses:
        for source, target in zip(access.read, access.written, strict=True):
            value = depth.get(source, 0)
            if isinstance(source, tuple):
                pointer = source[0] in changed
                found["pointer" if pointer else "slot load"] += 1
                value = depth.get(source[0], 0) + 1 if pointer else value
            if isinstance(target, tuple):
                found["slot store" if target[0] not in changed else "stray store"] += 1
            depth[target] = value
    slots = any(isinstance(place, tuple) for place in depth)
    ends = [n for place, n in depth.items() if n and isinstance(place, tuple) == slots]
    found.update(f"depth {n}" for n in ends)
    return found


def _x86(mnemonic: str, operands: str) -> Iterator[Access]:
    """AT&T order: the result comes last."""
    if mnemonic.startswith(X86_NO_RESULT):
        return
    *sources, target = re.findall(r"-?\w*\([^)]*\)|[%$][-\w]+", operands)
    place = _x86_place(target)
    copied = mnemonic.startswith("mov") and len(sources) == 1
    yield Access((_x86_place(sources[0]) if copied else "",), (place,))


def _x86_place(operand: str) -> Place:
    found = re.fullmatch(r"(-?\w*)\((%\w+)\)", operand)
    return (found[2], found[1]) if found else operand


def _arm(mnemonic: str, operands: str) -> Iterator[Access]:
    """The result comes first, except in stores."""
    memory = re.search(r"\[(\w+)(?:, #(-?\w+))?\]", operands)
    registers = re.findall(r"\b[xw]\w+", operands.split("[")[0])
    if memory:
        base, first = memory[1], int(memory[2] or "0", 0)
        places = tuple((base, str(first + 8 * i)) for i in range(len(registers)))
        store = mnemonic.startswith("st")
        yield Access(*((tuple(registers), places) if store else (places, tuple(registers))))
    elif not mnemonic.startswith(ARM_NO_RESULT) and registers:
        yield Access((registers[1] if mnemonic == "mov" and len(registers) > 1 else "",), (registers[0],))
