"""Count the instructions of a loop's machine code: they must equal the work that its kernel declares.

The assembly is read as text, its loops are found in the graph of its jumps, and what is counted
is one trip of the innermost loop (mix: of the block loop and of the FMA rounds inside it).
"""

from __future__ import annotations

import re
from collections import Counter

from bench.native.dependence import Instruction, chains
from bench.native.emit import CHAIN_UNROLL, Form, chase_steps
from bench.native.isa import Isa
from kernels.latency import LINE_BYTES
from kernels.mix import BLOCK_VECTORS
from kernels.spec import ITEM_BYTES, ChainShape, ChaseShape, Kernel, MixShape, StreamShape

TRIP = 3
"""x86-64 instructions that count a trip: add, compare, jump. More of them take room from loads in flight."""

KINDS = ("fma", "multiply", "add", "load", "store", "nontemporal", "prefetch", "spill")

X86_ARITHMETIC = re.compile(r"v?(fn?m(?:add|sub)\d{3}|mul|add)p([sdh])$")
X86_DOT = re.compile(r"vdpbf16ps$|vpdpbusd$")
X86_MOVE = re.compile(r"v?mov(?:[au]|nt)?(?:p[sd]|dq[au]?(?:32|64)?)$")
X86_BITS = re.compile(r"v?p?(?:xor|andn?|or|ternlog)(?:p[sd]|[dq])?$")
ARM_ARITHMETIC = {"fmla": "fma", "bfdot": "fma", "sdot": "fma", "fmul": "multiply", "fadd": "add"}
ARM_MEMORY = {"ldr": "load", "ldur": "load", "ldp": "load", "ldnp": "load"}
ARM_MEMORY |= {"str": "store", "stur": "store", "stp": "store", "stnp": "nontemporal"}


def parse(text: str) -> tuple[list[Instruction], dict[str, int]]:
    """Instructions in order, and for each label the index of the instruction it stands before."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for raw in text.splitlines():
        line = re.split(r"\s*(?:#(?!-?\w)|//|;)", raw, maxsplit=1)[0].strip().removeprefix("{vex}").lstrip()
        if label := re.fullmatch(r"(\.?\w+):", line):
            labels[label[1]] = len(instructions)
        elif line and not line.startswith("."):
            mnemonic, _, operands = line.partition("\t")
            instructions.append((mnemonic.strip(), operands.strip()))
    return instructions, labels


def loops(text: str) -> list[tuple[Instruction, ...]]:
    """The instructions of every natural loop of a function, the smallest loop first.

    A natural loop belongs to a jump back to a block that dominates it, wherever the compiler
    has placed the blocks; an outer loop includes its inner ones.
    """
    instructions, labels = parse(text)
    starts = sorted({0, *labels.values(), *(i + 1 for i, ins in enumerate(instructions) if _jump(ins))})
    starts = [s for s in starts if s < len(instructions)]
    ends = [*starts[1:], len(instructions)]
    follow = [_successors(i, instructions[e - 1], starts, e, labels) for i, e in enumerate(ends)]
    dominators = _dominators(follow)
    bodies: dict[int, set[int]] = {}
    for tail, heads in enumerate(follow):
        for head in heads & dominators[tail]:
            bodies.setdefault(head, {head}).update(_reaching(tail, head, follow))
    found = [
        tuple(i for n in sorted(body) for i in instructions[starts[n] : ends[n]]) for body in bodies.values()
    ]
    return sorted(found, key=len)


def _jump(instruction: Instruction) -> bool:
    mnemonic = instruction[0]
    return mnemonic.startswith(("j", "b.", "cbnz", "cbz", "tbz", "tbnz", "ret")) or mnemonic == "b"


def _successors(
    index: int, last: Instruction, starts: list[int], end: int, labels: dict[str, int]
) -> set[int]:
    found = set()
    target = labels.get(last[1].rsplit(",", 1)[-1].strip())
    if _jump(last) and target in starts:
        found.add(starts.index(target))
    falls = last[0] not in ("jmp", "b") and not last[0].startswith("ret")
    if falls and end in starts:
        found.add(starts.index(end))
    return found


def _dominators(follow: list[set[int]]) -> list[set[int]]:
    everything = set(range(len(follow)))
    found = [{0}] + [set(everything) for _ in follow[1:]]
    changed = True
    while changed:
        changed = False
        for node in range(1, len(follow)):
            before = [found[p] for p, heads in enumerate(follow) if node in heads]
            new = {node} | (set.intersection(*before) if before else set())
            changed, found[node] = changed or new != found[node], new
    return found


def _reaching(tail: int, head: int, follow: list[set[int]]) -> set[int]:
    found, waiting = {tail}, [tail]
    while waiting:
        node = waiting.pop()
        for before, heads in enumerate(follow):
            if node in heads and before not in found and node != head:
                found.add(before)
                waiting.append(before)
    return found | {head}


def count(body: tuple[Instruction, ...], isa: Isa) -> Counter[str]:
    """How many vector instructions of each kind (KINDS) a piece of code holds."""
    counter: Counter[str] = Counter()
    for mnemonic, operands in body:
        counter.update(_x86(mnemonic, operands) if isa.x86 else _arm(mnemonic, operands))
    return counter


def scalar(body: tuple[Instruction, ...]) -> int:
    """How many x86-64 instructions of a piece of code touch no vector register and are no prefetch."""
    return sum(not re.search(r"%[xyz]mm", i[1]) and not i[0].startswith("prefetch") for i in body)


def _x86(mnemonic: str, operands: str) -> Counter[str]:
    if mnemonic.startswith("prefetch"):
        return Counter(prefetch=1)
    vector = re.search(r"%[xyz]mm", operands)
    if not vector:
        return Counter(spill=1) if "(%rsp" in operands else Counter()
    memory = re.search(r"\([^)]*\)", operands)
    if memory and memory[0].startswith("(%rsp"):
        return Counter(spill=1)
    found: Counter[str] = Counter()
    constant = memory is not None and "%rip" in memory[0]
    if arithmetic := X86_ARITHMETIC.match(mnemonic):
        found[{"mul": "multiply", "add": "add"}.get(arithmetic[1], "fma")] += 1
    if X86_DOT.match(mnemonic):
        found["fma"] += 1
    if memory and not constant:
        if operands.endswith(")"):  # AT&T order: the destination comes last
            found["nontemporal" if "nt" in mnemonic else "store"] += 1
        elif arithmetic or X86_MOVE.match(mnemonic) or X86_BITS.match(mnemonic):
            found["load"] += 1
    return found


def _arm(mnemonic: str, operands: str) -> Counter[str]:
    if mnemonic == "prfm":
        return Counter(prefetch=1)
    if "[sp" in operands:
        return Counter(spill=1)
    if mnemonic in ARM_ARITHMETIC and re.match(r"v\d+\.", operands):
        return Counter({ARM_ARITHMETIC[mnemonic]: 1})
    kind = ARM_MEMORY.get(mnemonic)
    registers = re.findall(r"\b([qd])\d+", operands.split("[")[0])
    if kind and registers:
        whole = sum(1 if r == "q" else 0.5 for r in registers)
        return Counter({kind: int(whole)})
    return Counter()


def expected(kernel: Kernel, form: Form, isa: Isa, precision: str) -> dict[str, Counter[str]]:
    """Instructions by loop that the declared work of one trip stands for.

    Keys: "loop" for chains and streams; "block" and "rounds" for mix. Derived from
    kernel.work: FLOP and bytes of the items that one trip handles, divided by those of one
    vector instruction. Without FMA units each multiply-add is one multiply and one add.
    """
    item = ITEM_BYTES[precision]
    lanes = isa.vector_bytes // item
    if isinstance(kernel.shape, ChainShape):
        steps = CHAIN_UNROLL * form.chains
        work = kernel.work(item, {"n": steps * lanes}, "")
        return {"loop": _fused(int(work.flops / (2 * lanes)), isa)}
    if isinstance(kernel.shape, StreamShape):
        return {"loop": _stream(kernel, form, isa, item)}
    if isinstance(kernel.shape, MixShape):
        return _mix(kernel, form, isa, item)
    if isinstance(kernel.shape, ChaseShape):
        return {"loop": _chase(kernel, form, isa)}
    raise TypeError(f"{kernel.name} has no loop of its own")


def _chase(kernel: Kernel, form: Form, isa: Isa) -> Counter[str]:
    """Every line that the work counts is one load, and every chain ends as many loads deep as a trip has."""
    steps = chase_steps(form, isa)
    lines = kernel.work(0, {"n": steps * form.chains, "line": 1}, "L").reads["L"]
    wanted = Counter({"pointer": int(lines), f"depth {steps}": form.chains})
    if steps == 1:
        wanted.update({"slot load": form.chains, "slot store": form.chains})
    return wanted


def _fused(steps: int, isa: Isa) -> Counter[str]:
    return Counter(fma=steps) if isa.fma else Counter(multiply=steps, add=steps)


def _stream(kernel: Kernel, form: Form, isa: Isa, item: int) -> Counter[str]:
    vectors = form.streams * form.vectors
    work = kernel.work(item, {"n": vectors * isa.vector_bytes // item}, "L")
    store = "nontemporal" if form.nontemporal else "store"
    found = Counter({"load": int(work.reads["L"] / isa.vector_bytes)})
    found[store] = int(work.writes["L"] / isa.vector_bytes)
    flops = int(work.flops * item / isa.vector_bytes / vectors)  # per item: 0, 1 or 2
    if flops == 2:
        found.update(_fused(vectors, isa))
    elif flops == 1:
        found["add" if kernel.name in ("add", "read", "cache-read") else "multiply"] = vectors
    if form.prefetch:
        lines = -(-form.vectors * isa.vector_bytes // LINE_BYTES)
        found["prefetch"] = form.streams * lines * len(getattr(kernel.shape, "loads", ()))
    return +found


def _mix(kernel: Kernel, form: Form, isa: Isa, item: int) -> dict[str, Counter[str]]:
    n = BLOCK_VECTORS * isa.vector_bytes // item
    first = min(form.fma, BLOCK_VECTORS)
    work = kernel.work(item, {"n": n, "fma": first}, "L")
    block = _fused(int(work.flops * item / (2 * isa.vector_bytes)), isa)
    block["load"] = int(work.reads["L"] / isa.vector_bytes)
    block["store"] = int(work.writes["L"] / isa.vector_bytes)
    if form.prefetch:
        vectors = BLOCK_VECTORS // form.streams
        block["prefetch"] = form.streams * -(-vectors * isa.vector_bytes // LINE_BYTES)
    rounds = _fused(BLOCK_VECTORS, isa) if form.fma >= BLOCK_VECTORS else Counter()
    return {"block": +block, "rounds": rounds}


def audit(text: str, kernel: Kernel, form: Form, isa: Isa, precision: str) -> list[str]:
    """Every way in which the assembly of a loop departs from the declared work; empty when none."""
    want = expected(kernel, form, isa, precision)
    found = loops(text)
    if not found:
        return ["no loop survived"]
    faults = []
    got = {"loop": count(found[0], isa)}
    if isinstance(kernel.shape, MixShape):
        rounds = count(found[0], isa) if want["rounds"] else Counter()
        block = count(found[1 if want["rounds"] else 0], isa)
        got = {"block": block - rounds, "rounds": rounds}
    if isinstance(kernel.shape, ChaseShape):
        got["loop"] += chains(found[0], isa)
    if isinstance(kernel.shape, StreamShape | MixShape) and isa.x86 and scalar(found[0]) != TRIP:
        faults.append(f"loop: {scalar(found[0])} instructions beside the vectors, a trip takes {TRIP}")
    for name, expectation in want.items():
        for kind in dict.fromkeys((*KINDS, *got[name], *expectation)):
            if got[name][kind] != expectation[kind]:
                faults.append(f"{name}: {got[name][kind]} {kind} instructions, declared {expectation[kind]}")
    return faults
