"""SASS, the machine code of NVIDIA GPUs, read from nvdisasm's listing: functions, instructions, loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
LABEL = re.compile(r"(\.L\w+):")
INSTRUCTION = re.compile(
    r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;\s*/\*\s*0x[0-9a-f]{16}\s*\*/"
)
SECOND_WORD = re.compile(r"\s*/\*\s*0x([0-9a-f]{16})\s*\*/")
STALL_BIT = 41
"""Where the four bits of the stall cycles begin in the second 64-bit word of an instruction."""

COMPARES = ("ISETP", "UISETP", "PLOP3", "UPLOP3", "VISETP")
ADDS = ("IADD", "IADD3", "UIADD", "UIADD3", "VIADD", "UVIADD", "IADD32I")
REGISTER = re.compile(r"\bU?R\d+")
PREDICATE = re.compile(r"\bU?P\d\b")


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    predicate: "P0", "!P0" or "";  opcode: with its suffixes;  operands: as printed, comma-separated
    stall: cycles until the same warp may issue again;  target: label of a jump, "" for none
    """

    address: int
    predicate: str
    opcode: str
    operands: tuple[str, ...]
    stall: int

    @property
    def base(self) -> str:
        """The opcode without suffixes."""
        return self.opcode.split(".")[0]

    @property
    def target(self) -> str:
        """The label that a jump names."""
        found = re.search(r"`\((\.L\w+)\)", " ".join(self.operands))
        return found[1] if found else ""

    def reads(self, kind: re.Pattern[str]) -> set[str]:
        """Names of the registers or predicates among all but the first operand."""
        return set(kind.findall(" ".join(self.operands[1:])))


@dataclass(frozen=True)
class Loop:
    """The instructions from the head of a loop to the branch that leads back to it."""

    instructions: tuple[Instruction, ...]
    conditions: tuple[str, ...]

    @property
    def steps(self) -> set[int]:
        """What each counter is changed by in one pass, of all that decide whether the loop goes on."""
        waiting, seen, found = list(self.conditions), set[str](), set[int]()
        while waiting:
            predicate = waiting.pop()
            if predicate not in seen:
                seen.add(predicate)
                for compare in self._comparisons(predicate):
                    waiting += compare.reads(PREDICATE)
                    found.update(self._immediates(compare.reads(REGISTER)))
        return found

    def _comparisons(self, predicate: str) -> Iterator[Instruction]:
        for i in self.instructions:
            if i.base in COMPARES and predicate in i.operands[:2]:
                yield i

    def _immediates(self, registers: set[str]) -> Iterator[int]:
        for i in self.instructions:
            if i.base in ADDS and i.operands[0] in registers and i.reads(REGISTER):
                words = [o for o in i.operands[1:] if re.fullmatch(r"-?0x[0-9a-f]+", o)]
                yield from (abs(_signed(word)) for word in words)


def _signed(word: str) -> int:
    value = int(word, 16)
    return value - 2**32 if value >= 2**31 else value


@dataclass(frozen=True)
class Function:
    """One function of a listing: its instructions in order and the address behind each label."""

    name: str
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """The innermost loops: no other backward branch lies within them. The trap at the end is none."""
        spans = [
            (self.labels[i.target], i.address)
            for i in self.instructions
            if i.base == "BRA" and self.labels.get(i.target, i.address) < i.address
        ]
        inner = [s for s in spans if not any(o != s and o[0] >= s[0] and o[1] <= s[1] for o in spans)]
        return tuple(self._loop(*span) for span in inner)

    def _loop(self, start: int, end: int) -> Loop:
        body = tuple(i for i in self.instructions if start <= i.address <= end)
        jumps = [i for i in body if i.target and not i.base.startswith(("BSSY", "BSYNC"))]
        conditions = [i.predicate.lstrip("!") for i in jumps if i.predicate]
        conditions += [name for i in jumps for name in PREDICATE.findall(i.operands[0])]
        return Loop(body, tuple(conditions))

    def is_uniform(self, access: Instruction) -> bool:
        """Whether all threads access the same address, as by its origin in a kernel's parameter."""
        address = next((o for o in access.operands if "[" in o), "")
        return all(self._is_parameter(name, access) for name in re.findall(r"\bR\d+", address))

    def _is_parameter(self, register: str, reader: Instruction) -> bool:
        """Whether the last instruction before `reader` that sets `register` reads no other register."""
        before = [i for i in self.instructions if i.address < reader.address]
        setter = next((i for i in reversed(before) if i.operands and i.operands[0] == register), None)
        if setter is None or setter.base in ("S2R", "CS2R") or setter.base.startswith("LDG"):
            return False
        return not re.search(r"\bR\d+", " ".join(setter.operands[1:]))


def count(instructions: Sequence[Instruction], opcode: str) -> int:
    """How many instructions have an opcode that `opcode`, a regular expression, matches wholly."""
    pattern = re.compile(opcode)
    return sum(pattern.fullmatch(i.opcode) is not None for i in instructions)


def parse(listing: str) -> dict[str, Function]:
    """Every function of what `nvdisasm -c -hex` prints, by name."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in listing.splitlines():
        if section := SECTION.match(line):
            lines = sections.setdefault(section[1], [])
        else:
            lines.append(line)
    return {name: _function(name, lines) for name, lines in sections.items()}


def _function(name: str, lines: Sequence[str]) -> Function:
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if label := LABEL.match(line):
            waiting.append(label[1])
        elif found := INSTRUCTION.match(line):
            word = SECOND_WORD.match(after)
            stall = int(word[1], 16) >> STALL_BIT & 0xF if word else 0
            operands = tuple(o.strip().replace(".reuse", "") for o in found[4].split(","))
            instructions.append(Instruction(int(found[1], 16), found[2] or "", found[3], operands, stall))
            labels |= dict.fromkeys(waiting, int(found[1], 16))
            waiting.clear()
    return Function(name, tuple(instructions), labels)
