"""What triage says: one subject, one cause, one plain sentence with its numbers, and what to try."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.profile.records import WHOLE, Ceiling
from bench.report.units import counted, si

Evidence = Mapping[str, float | str]

CAUSES = (
    *("hang", "out-of-memory", "missing-precision", "timer", "wrong-stream", "throttling", "stuck-clock"),
    *("power-cap", "thermal-cap", "noisy-neighbour", "cpu-quota", "wrong-device", "partition"),
    "memory-clock",
    *("cache-resident", "byte-count", "byte-convention", "folded-chain", "dual-issue", "tf32"),
    *("boost-clock", "sparse-datasheet", "pageable-memory", "sweep-step", "narrow-probe", "launch-bound"),
    *("latency", "wrong-precision", "library", "cold-start", "instructions"),
    "unexplained",
)
"""Every word a cause can be, in the order in which findings are told."""

REMEDIES = {
    "hang": "look at the device's own log, run it alone, and go on with `run --resume`",
    "out-of-memory": "free memory, or ask for less with --threads or --families",
    "missing-precision": "nothing to do if the device lacks it; else update driver and libraries",
    "timer": "believe no rate of this run; reboot or update the driver, then measure again",
    "wrong-stream": "record the events on the stream that runs the work, or synchronise before the clock",
    "throttling": "cool the device or raise its limit, then measure again; early and late rounds differ",
    "stuck-clock": "look for a locked clock or another power plan, reset it, and measure again",
    "power-cap": "this is what the device holds at its power limit; compare at equal limits",
    "thermal-cap": "improve the cooling; this is what the device holds at this temperature",
    "noisy-neighbour": "stop the other work, or measure longer",
    "cpu-quota": "give the container more CPUs, or use fewer --threads than it has",
    "wrong-device": "check which device was opened and which one the telemetry reads, by UUID",
    "partition": "compare with figures of the slice, not of the whole device",
    "memory-clock": "look for a lowered memory clock or another power state, reset it, and measure again",
    "cache-resident": "use larger arrays, four times the last-level cache together",
    "byte-count": "correct the bytes that this kernel declares",
    "byte-convention": "compare figures that count alike: copy moves 2 streams, triad 3, a link one way",
    "folded-chain": "look at the machine code: the loop must hold every FMA it claims",
    "dual-issue": "raise the theoretical rate: this device issues more in a cycle than the table knows",
    "tf32": "switch TF32 off to measure fp32, or name the figure tf32",
    "boost-clock": "compare per clock, or with the figure at the clock that was held",
    "sparse-datasheet": "compare with the dense figure, which is half of it",
    "pageable-memory": "pin the host's buffers",
    "sweep-step": "read the two sides apart; the fit keeps them apart",
    "narrow-probe": "compare with a library product, wider instructions or more loads in flight before taking"
    " it for the peak",
    "launch-bound": "give one launch more work, or put launches into a graph",
    "latency": "batch it: one execution is too short to fill the device",
    "wrong-precision": "check the types of operands and of the accumulator",
    "library": "compare with another build of the library; this one is far below the vector ceiling",
    "cold-start": "measure longer, so that executions follow each other",
    "instructions": "look in its machine code for special functions, shuffles and loads by index",
    "unexplained": "measure again alone; if it stays, report it with samples.jsonl",
}
"""What to try, by cause."""


@dataclass(frozen=True)
class Finding:
    """One diagnosis.

    subject: what is wrong, in words;  cause: one of CAUSES;  sentence: with the evidence's numbers in units
    evidence: the same by name, SI units;  remedy: what to try
    subjects: each of those that share the cause and are told together, the subject alone else
    """

    subject: str
    cause: str
    sentence: str
    evidence: Evidence = field(default_factory=dict)
    remedy: str = ""
    subjects: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.subjects:
            object.__setattr__(self, "subjects", (self.subject,))


@dataclass(frozen=True)
class Number:
    """A measured value beside what it should be: `of` says what that is; unit as in a ceiling."""

    subject: str
    value: float
    expected: float
    unit: str
    of: str

    @property
    def ratio(self) -> float:
        """Measured over expected."""
        return self.value / self.expected

    @property
    def said(self) -> str:
        """Subject, value and expectation in words."""
        times = f"{self.ratio:.2f} times" if self.ratio < 100 else f"{self.ratio:.0f} times"
        measured, expected = si(self.value, self.unit), si(self.expected, self.unit)
        return f"{self.subject} is {measured}, {times} {self.of} of {expected}"

    @property
    def evidence(self) -> dict[str, float | str]:
        """Value, expectation and their ratio."""
        return {"value": self.value, "expected": self.expected, "ratio": self.ratio, "unit": self.unit}


def found(cause: str, subject: str, sentence: str, **evidence: float | str) -> Finding:
    """A finding with the remedy of its cause."""
    return Finding(subject, cause, sentence, evidence, REMEDIES[cause])


def about(number: Number, cause: str, because: str, **evidence: float | str) -> Finding:
    """A finding about a number: its sentence begins with the number itself."""
    return Finding(
        number.subject, cause, f"{number.said}: {because}", {**number.evidence, **evidence}, REMEDIES[cause]
    )


def several(subjects: Sequence[str], cause: str, sentence: str, evidence: Evidence) -> Finding:
    """A finding about more than one subject."""
    return Finding(", ".join(subjects), cause, sentence, evidence, REMEDIES[cause], tuple(subjects))


def unexplained(number: Number, tested: Sequence[str]) -> Finding:
    """What is said when every hypothesis failed: which ones, and why each."""
    return about(
        number, "unexplained", f"not explained; tested: {'; '.join(tested)}", tested="; ".join(tested)
    )


def name(c: Ceiling, short: bool = False) -> str:
    """A ceiling in words; `short` without threads and regime."""
    what = f"π {c.precision.label}" if c.quantity == "pi" else f"β {c.level} {c.access}"
    kernel = "" if c.kernel in (c.access, "fma", "gemm", f"cache-{c.access}") else f" {c.kernel}"
    store = " nt" if c.store == "nontemporal" else ""
    if short:
        return what + kernel + store
    where = "" if c.scope in WHOLE else f" on {counted(c.threads, 'thread')}"
    return what + kernel + store + where + ("" if c.regime == "typical" else f" {c.regime}")


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """One finding a cause of those about numbers: the most extreme, the others named behind it."""
    groups: dict[str, list[Finding]] = {}
    for one in findings:
        groups.setdefault(one.cause, []).append(one)
    return [one for group in groups.values() for one in _merged(group)]


def _merged(group: list[Finding]) -> list[Finding]:
    numbers = [f for f in group if "ratio" in f.evidence]
    if group[0].cause == "unexplained" or len(numbers) < 2:
        return group
    first = max(numbers, key=lambda f: abs(float(f.evidence["ratio"]) - 1))
    others = tuple(dict.fromkeys(f.subject for f in numbers if f.subject != first.subject))
    told = f"{first.sentence}; so too {', '.join(others)}" if others else first.sentence
    whole = replace(first, sentence=told, subjects=(first.subject, *others))
    return [f for f in group if f not in numbers] + [whole]


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings in the order of CAUSES, each once."""
    unique = {(f.cause, f.subject): f for f in findings}
    return tuple(sorted(unique.values(), key=lambda f: CAUSES.index(f.cause)))
