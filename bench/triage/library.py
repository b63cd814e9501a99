"""A library of the CPU whose code is narrower than the machine's vectors, and what made it so."""

from __future__ import annotations

from bench.profile.records import Ceiling
from bench.report.units import percent, si
from bench.triage.case import Case
from bench.triage.finding import Finding, name

VECTOR_BYTES = {
    **dict.fromkeys(("SkylakeX", "Cooperlake", "SapphireRapids"), 64),
    **dict.fromkeys(("Haswell", "Zen", "Sandybridge", "Bulldozer", "Piledriver", "Steamroller"), 32),
    **dict.fromkeys(("Excavator",), 32),
    **dict.fromkeys(("Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Atom", "Nano"), 16),
    **dict.fromkeys(("Opteron", "Opteron_SSE3", "Barcelona", "Bobcat"), 16),
}
"""Width of the vectors in OpenBLAS's code for each x86-64 processor that it knows by name."""

MACHINE_BYTES = (("avx512f", 64), ("avx2", 32), ("sse2", 16))

SHORT = 0.8
"""Share of the dedicated π below which narrow code is worth telling: good products reach 0.85 to 0.95."""


def narrow(case: Case) -> list[Finding]:
    """The products of such a library, told together; [] where its code is as wide as the machine."""
    told = next((s for s in case.timed if s.point.family == "gemm" and "library" in s.facts), None)
    if told is None:
        return []
    library, set_by = str(told.facts["library"]), str(told.facts.get("library_set_by", ""))
    build, _, code = library.rpartition(" ")
    has = next((width for flag, width in MACHINE_BYTES if flag in case.facts.get("isa", ())), 0)
    if VECTOR_BYTES.get(code, has) >= has:
        return []
    pairs = [(c, _dedicated(case, c)) for c in case.peaks]
    low = [(c, top) for c, top in pairs if c.estimate.value < SHORT * top]
    if not low:
        return []
    first, top = max(low, key=lambda pair: pair[0].threads)
    sentence = (
        f"{name(first, short=True)} is {si(first.estimate.value, first.unit)}, "
        f"{percent(first.estimate.value / top)} of the dedicated π: {build} runs its code for {code}, "
        f"whose vectors hold {VECTOR_BYTES[code]} byte, this CPU's hold {has}"
    )
    wide = next(name for name, width in VECTOR_BYTES.items() if width == has)
    remedy = f"try OPENBLAS_CORETYPE={wide} in the environment, or another build of the library"
    if set_by:
        sentence += f"; {set_by} in the environment asks for it"
        remedy = f"unset {set_by.partition('=')[0]}, then measure again"
    evidence: dict[str, float | str] = {"library": library, "code": code, "set_by": set_by}
    subjects = tuple(name(c) for c, _ in low)
    return [Finding(", ".join(subjects), "library", sentence, evidence, remedy, subjects)]


def _dedicated(case: Case, c: Ceiling) -> float:
    """The dedicated π of the same types and threads; 0 of what is no product of the library."""
    if c.precision.unit != "library":
        return 0.0
    p = c.precision
    same = [
        k.estimate.value
        for k in case.peaks
        if (k.precision.inputs, k.precision.accumulate) == (p.inputs, p.accumulate)
        and k.precision.unit != "library"
        and k.threads == c.threads
    ]
    return max(same, default=0.0)
