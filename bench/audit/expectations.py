"""The check of one function against its Expect: every way in which the machine code departs from it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench.audit.issue import Bound, bound, capability, resident_warps
from bench.audit.sass import Function, Instruction, Loop, count
from bench.audit.toolchain import Usage
from kernels.spec import CudaForm

MOST_UNROLLED = 64
"""A counter that changes by more in a pass holds an address or an item, not trips."""

MEMORY = ("LDG", "STG", "LD", "ST")
LOCAL = r"(LDL|STL)(\..+)?"
DOUBLES = r"D(FMA|ADD|MUL|SETP|MNMX)(\..+)?|(F2F|I2F|F2I)\.(.*\.)?F64(\..+)?"
"""Arithmetic of fp64: in a kernel of less precision it comes from a literal without its f."""

STRICT_SHARE, STRICT_FROM = 0.98, 0.97
"""On sm_90, whose loops have two instructions less to spend, a share of 0.97 asked means 0.98."""


@dataclass(frozen=True)
class Finding:
    """What one function is on one architecture; it passes when `misses` is empty.

    misses: what was expected and what was found, a sentence each
    trips: source trips that one pass of the hot loop does, 0 without a loop
    share: of the hot loop's instructions that are the expected ones;  least_share: asked, 0 where none is
    counts: expected and found opcodes in one pass of it, or in the function
    warps: resident on an SM at once;  bound: predicted share of peak, None where it says nothing
    """

    family: str
    entry: str
    kernel: str
    precision: str
    variant: str
    architecture: str
    misses: tuple[str, ...] = ()
    trips: int = 0
    share: float | None = None
    least_share: float = 0.0
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    registers: int | None = None
    spilled: int | None = None
    warps: int | None = None
    bound: Bound | None = None


def is_made_for(form: CudaForm, architecture: str) -> bool:
    """Whether a form exists on an architecture; "90a" holds only what is made for it."""
    if form.only:
        return architecture in form.only
    return architecture.isdigit() and capability(architecture) >= form.least_cc


def failed(family: str, form: CudaForm, architecture: str, reason: str) -> Finding:
    """The finding of a function that could not be compiled or read."""
    return Finding(family, *_names(form), architecture, (f"expected it to compile, found: {reason}",))


def check(
    family: str, form: CudaForm, architecture: str, function: Function | None, usage: Usage | None
) -> Finding:
    """The finding of a compiled function; without `function` only what ptxas said is checked."""
    facts = _usage_facts(form, architecture, usage)
    least = least_share(form, architecture)
    finding = Finding(family, *_names(form), architecture, least_share=least, **facts)
    misses = list(_usage(form, usage))
    if function:
        loop = hot_loop(function, form)
        trips = trips_of(loop, form) if loop else 0
        finding = replace(finding, trips=trips, counts=_counts(form, function, loop, trips))
        if loop:
            flops = 0 if form.items else form.flops * trips
            found = bound(loop, flops, form.precision, architecture)
            finding = replace(finding, share=_share(form, loop), bound=found)
        misses += _code(form, function, loop, finding)
    return replace(finding, misses=tuple(misses))


def _names(form: CudaForm) -> tuple[str, str, str, str]:
    return form.entry, form.kernel, form.precision, form.variant


def hot_loop(function: Function, form: CudaForm) -> Loop | None:
    """The innermost loop with most of the expected opcodes, None where none has any or none is wanted."""
    if not form.expect.loop or not function.loops:
        return None
    best = max(function.loops, key=lambda loop: _matched(form, loop.instructions))
    return best if _matched(form, best.instructions) else None


def _matched(form: CudaForm, instructions: Sequence[Instruction]) -> int:
    return count(instructions, "|".join(f"(?:{opcode})" for opcode in form.expect.opcodes))


def _share(form: CudaForm, loop: Loop) -> float:
    working = [i for i in loop.instructions if i.base != "NOP"]
    return _matched(form, working) / len(working)


def least_share(form: CudaForm, architecture: str) -> float:
    """What is asked of the hot loop, more on sm_90 where a chain is."""
    strict = capability(architecture) == 90 and form.expect.share >= STRICT_FROM
    return max(form.expect.share, STRICT_SHARE) if strict else form.expect.share


def trips_of(loop: Loop, form: CudaForm) -> int:
    """Trips of the source that one pass does: its counter's step, which the counts must agree with."""
    steps = {step for step in loop.steps if 0 < step <= MOST_UNROLLED} or {1}
    wanted = form.expect.opcodes.items()
    fitting = [step for step in steps if all(count(loop.instructions, o) == n * step for o, n in wanted)]
    return min(fitting or steps)


def _counts(form: CudaForm, function: Function, loop: Loop | None, trips: int) -> dict[str, tuple[int, int]]:
    """Expected and found in one pass of the hot loop, or in the function where no loop is wanted."""
    if form.expect.loop and loop is None:
        return {opcode: (want, 0) for opcode, want in form.expect.opcodes.items()}
    scope = loop.instructions if loop else function.instructions
    return {o: (want * max(trips, 1), count(scope, o)) for o, want in form.expect.opcodes.items()}


def _usage_facts(form: CudaForm, architecture: str, usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    warps = resident_warps(usage.registers, form.blocks[0], architecture)
    return {"registers": usage.registers, "spilled": usage.spilled, "warps": warps}


def _usage(form: CudaForm, usage: Usage | None) -> Iterator[str]:
    if usage is None:
        yield "expected the function in the compiler's output, found none"
        return
    if usage.registers > form.expect.registers:
        yield f"expected at most {form.expect.registers} registers, found {usage.registers}"
    if usage.spilled:
        yield f"expected no spill, found {usage.spilled} bytes spilled to local memory"
    elif usage.stack:
        yield f"expected no stack, found {usage.stack} bytes of it in local memory"


def _code(form: CudaForm, function: Function, loop: Loop | None, finding: Finding) -> Iterator[str]:
    if form.expect.loop and loop is None:
        yield f"expected a loop with {_wanted(form)}, found {_largest(function)}"
    else:
        yield from _miscounts(finding, loop is not None)
    if loop:
        yield from _thin(form, loop, finding)
    yield from _widths(form, function, loop)
    yield from _waits(form, function, loop)
    yield from _strangers(form, function)


def _largest(function: Function) -> str:
    """What the longest loop holds, for one who looks for what became of the work."""
    if not function.loops:
        return "no loop: it was folded away"
    body = max((loop.instructions for loop in function.loops), key=len)
    most = Counter(i.opcode for i in body).most_common(2)
    return "one with " + ", ".join(f"{n} {opcode}" for opcode, n in most)


def _miscounts(finding: Finding, in_loop: bool) -> Iterator[str]:
    place = "the function"
    if in_loop:
        place = "a trip of the hot loop" if finding.trips == 1 else f"{finding.trips} trips of the hot loop"
    for opcode, (want, got) in finding.counts.items():
        if want != got:
            yield f"expected {want} {readable(opcode)} in {place}, found {got}"


def _thin(form: CudaForm, loop: Loop, finding: Finding) -> Iterator[str]:
    if finding.share is not None and finding.share < finding.least_share:
        others = Counter(i.base for i in loop.instructions if not _matched(form, [i]) and i.base != "NOP")
        most = ", ".join(f"{n} {opcode}" for opcode, n in others.most_common(3))
        yield (
            f"expected {100 * finding.least_share:.1f} % of the hot loop to be {_wanted(form)}, "
            f"found {100 * finding.share:.1f} % beside {most}"
        )


def _wanted(form: CudaForm) -> str:
    return ", ".join(readable(opcode) for opcode in form.expect.opcodes)


def _widths(form: CudaForm, function: Function, loop: Loop | None) -> Iterator[str]:
    """Bulk accesses: those of the hot loop, else of the function less what all threads read alike.

    A function that stores one result a thread (a persistent grid) does so in whatever width.
    """
    if not form.expect.load_bits:
        return
    bulk = _accesses(loop.instructions, function) if loop else []
    if not bulk:
        results = ("STG", "ST") if form.grid == "persistent" else ()
        bulk = [i for i in _accesses(function.instructions, function) if i.base not in results]
    wrong = Counter(i.opcode for i in bulk if width(i.opcode) != form.expect.load_bits)
    if not bulk:
        yield f"expected {form.expect.load_bits}-bit loads and stores, found none at all"
    for opcode, n in wrong.items():
        bits = width(opcode)
        yield f"expected {form.expect.load_bits}-bit loads and stores, found {n} {opcode} of {bits} bits"


def _accesses(instructions: Sequence[Instruction], function: Function) -> list[Instruction]:
    return [i for i in instructions if i.base in MEMORY and not function.is_uniform(i)]


def _waits(form: CudaForm, function: Function, loop: Loop | None) -> Iterator[str]:
    """Loads that follow each other before anything waits for one: what hides the latency of memory."""
    if form.expect.in_flight > (found := in_flight(loop.instructions if loop else None, function)):
        yield f"expected {form.expect.in_flight} loads before the first is waited for, found {found}"


def in_flight(loop: Sequence[Instruction] | None, function: Function) -> int:
    """Bulk loads of a loop, else of the function, before the first instruction that needs one of them."""
    waiting, found = set[int](), 0
    for i in function.instructions if loop is None else loop:
        named = [int(number) for number in re.findall(r"\bR(\d+)", " ".join(i.operands))]
        if waiting & {*named}:
            break
        if i.base in ("LDG", "LD") and not function.is_uniform(i):
            waiting |= {named[0] + word for word in range(max(1, width(i.opcode) // 32))}
            found += 1
    return found


def width(opcode: str) -> int:
    """Bits that one thread moves by a load or store."""
    found = re.search(r"\.(?:[US]?(8|16)|(64|128|256))(?:\.|$)", opcode)
    return int(found[1] or found[2]) if found else 32


def _strangers(form: CudaForm, function: Function) -> Iterator[str]:
    forbidden = [*form.expect.forbidden, LOCAL]
    if not form.precision.startswith("fp64"):
        forbidden.append(DOUBLES)
    found = Counter(
        i.opcode for i in function.instructions if any(re.fullmatch(f, i.opcode) for f in forbidden)
    )
    for opcode, n in found.items():
        reason = ", arithmetic in fp64: a literal without its f?" if re.fullmatch(DOUBLES, opcode) else ""
        yield f"expected no {opcode}, found {n}{reason}"


def readable(opcode: str) -> str:
    """A regular expression of an opcode without its optional parts: LDG.E.128."""
    return re.sub(r"\((?:[^()]|\([^()]*\))*\)\?", "", opcode).replace("\\", "")
