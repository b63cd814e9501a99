"""A run inside its time box: pilot, whole rounds in shuffled order, extra ones where intervals are wide."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from bench.fitting.intervals import MIN_ROUNDS, clean_rates, interval, quantile
from bench.fitting.pooled import work
from bench.planning.planned import Plan, Planned
from bench.planning.timebox import Allotment, Ledger, TimeBox, allot
from bench.profile.records import WHOLE, Sample
from bench.report.units import counted, si
from bench.running.history import History, shuffled
from bench.running.progress import Screen, duration, named
from bench.running.runners import Runner
from bench.store import Store, key_of

FINISHED = "finished"
"""Text of the last note of a run that came to its end by itself."""

PILOT_SHARE = 0.2
CLEARLY, ON_A_GPU = 1.02, 1.005
"""Factor by which another variant must beat the guess in the pilot; on a GPU, whose clock the same program
finds steady to a few thousandths, a form that is two per cent slower must not stand for the device."""

WARM_UP, GPU_WARM_UP = 0.3, 1.0
"""Seconds of work before the first point of a round that is not measured cold; of a GPU, whose clock takes
longer to settle, the most: it goes on as soon as its clock is flat."""

EXTRA_ROUNDS = 30
EXTRA_SHARE = 0.15
"""Share of the box that one extra round may take: many short rounds narrow an interval fastest."""

PATIENCE, GRACE = 20.0, 10.0
"""Seconds without an answer after which a point is given up; and beyond the end of the box."""

TOUCHED_PER_SECOND = 100e6
"""Byte/s at which even a slow machine fills new arrays."""

HEADLINES = (("fma", "first pi"), ("read", "first beta"), ("triad", "first beta"))


def rate(sample: Sample, q: float) -> float | None:
    """FLOP/s of a sample (byte/s where its kernel is named after its traffic), None when it has none."""
    works = work(sample) or sample.bytes
    rates = clean_rates(works, sample.repetitions).rates if sample.status == "ok" and works else ()
    return quantile(rates, q) if rates else None


def winners(trials: Iterable[Planned], samples: Iterable[Sample]) -> dict[str, str]:
    """The variant of every choice that was tried with the highest median rate.

    The guess stands unless another is faster by more than a few repetitions can differ by chance.
    """
    tried = {sample.point.key: sample for sample in samples if sample.round == 0}
    best: dict[str, tuple[float, str]] = {}
    for trial in trials:
        sample = tried.get(trial.point.key)
        value = rate(sample, 0.5) if sample else None
        clearly = ON_A_GPU if trial.point.scope == "device" else CLEARLY
        if value is not None and value > clearly * best.get(trial.tune, (0.0, ""))[0]:
            best[trial.tune] = (value, trial.point.variant)
    return {tune: variant for tune, (_, variant) in best.items()}


@dataclass
class Campaign:
    """Runs a plan; everything it learns is in the store before the next point begins."""

    runner: Runner
    store: Store
    box: TimeBox
    plan: Plan
    screen: Screen
    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    shown: set[str] = field(default_factory=set)
    history: History = field(init=False)
    _latest: dict[str, Sample] = field(default_factory=dict)
    _read: int = 0

    def __post_init__(self) -> None:
        self.history = History(self.store, self.runner.by_family)

    def run(self) -> None:
        """Pilot, planned rounds, extra rounds; then say what was not measured."""
        points = self.plan.settled(self.pilot())
        self._remember(points)
        self.planned_rounds(points)
        self.extra_rounds(points)
        self.history.record_given_up(points, self.runner.process)
        self.screen.end()
        absent = [*self.plan.notes, *self.history.remarks(), *self.unmeasured(points)]
        self.store.append_note(text=FINISHED, not_measured=absent)

    def _remember(self, points: Sequence[Planned]) -> None:
        """Learn the costs of what an interrupted run measured."""
        known = {p.key: p for p in (*self.plan.pilot, *points)}
        for sample in self.store.samples:
            if (planned := known.get(key_of(sample))) and planned.key not in self.ledger.points:
                self.ledger.add(planned, sample)

    # -- the pilot ---------------------------------------------------------------------------

    def pilot(self) -> Mapping[str, str]:
        """Try the variants of every choice (round 0, opened for planning already); the winners.

        A run that is resumed keeps the winners it had.
        """
        for note in self.store.notes:
            if "winners" in note:
                return dict(note["winners"])
        if self.plan.pilot:
            began, spent = self.box.elapsed, self.ledger.spent
            self._begin(0, "pilot", len(self.plan.pilot), "choosing the best form of each loop", "pilot")
            self._warm_up()
            self._try_all(self.box.left * PILOT_SHARE)
            self.runner.close()
            if self.runner.by_family:  # a round will start as many processes
                self.ledger.starts.append(self.box.elapsed - began - (self.ledger.spent - spent))
        found = winners(map(self.history.fitted, self.plan.pilot), self.store.samples)
        chosen = {**self.plan.guesses, **found}
        self.store.append_note(text="variants chosen by the pilot's medians", winners=chosen)
        return chosen

    def _try_all(self, seconds: float) -> None:
        end, kernel = self.box.elapsed + seconds, ""
        headline, dead = {kernel for kernel, _ in HEADLINES}, ""
        for order, trial in enumerate(self.plan.pilot):
            trial = self.history.fitted(trial)
            if trial.point.kernel != kernel:
                self._show_headlines()
                kernel = trial.point.kernel
            first = kernel in headline and trial.point.scope in WHOLE
            late = self.box.elapsed > end and not first
            if self.store.holds(0, trial.key) or late or trial.point.family == dead:
                continue
            if self._measure(trial, order, 1.0, order).facts.get("lost") and self.runner.by_family:
                dead = trial.point.family
        self._show_headlines()

    def _show_headlines(self) -> None:
        """The first pi and beta, as soon as there are any."""
        for kernel, what in HEADLINES:
            found = [s for s in self.store.samples if s.point.kernel == kernel and s.point.scope in WHOLE]
            for precision in dict.fromkeys(s.point.precision.label for s in found):
                name = f"{kernel} {precision}"
                rates = [(rate(s, 0.5), s.point) for s in found if s.point.precision.label == precision]
                known = [(value, point) for value, point in rates if value is not None]
                if known and name not in self.shown:
                    value, point = max(known, key=lambda k: k[0])
                    unit = "FLOP/s" if kernel == "fma" else "byte/s"
                    how = f"{name}, {point.variant}, {counted(point.threads, self.plan.unit)}"
                    self.screen.say(f"  {what}: {si(value, unit)} ({how}; the rounds will tell)")
                    self.shown.add(name)

    # -- rounds ------------------------------------------------------------------------------

    def planned_rounds(self, points: Sequence[Planned]) -> None:
        """Whole rounds until the planned number is reached or the box is full."""
        preset = self.plan.preset
        while (done := self._complete()) < preset.rounds:
            wanted, least = preset.rounds - done, max(1, preset.least_rounds - done)
            allotment = allot(self.ledger, self.history.worth_it(points), self.box.left, wanted, least)
            cost = self.ledger.round(allotment.kept, allotment.scale)
            if not allotment.kept or (done and self.box.left < cost):
                break
            if not self._round("planned", allotment, done + 1, done + allotment.rounds):
                break

    def _complete(self) -> int:
        return sum(note["kind"] == "planned" and note["complete"] for note in self._ends())

    def _ends(self) -> list[Mapping[str, Any]]:
        return [note for note in self.store.notes if note.get("event") == "end"]

    def _number(self, kind: str) -> int:
        """The round to go on with: one of this kind that was cut short in an earlier run, else a new one."""
        begun = {n["round"]: n["kind"] for n in self.store.notes if n.get("event") == "begin"}
        over = {n["round"] for n in self._ends() if n["complete"] or n["kind"] == "extra"}
        open_rounds = [r for r, k in begun.items() if k == kind == "planned" and r not in over]
        return min(open_rounds, default=max(begun, default=0) + 1)

    def _round(self, kind: str, allotment: Allotment, shown: int, of: int) -> bool:
        """One round in a process of its own; whether it was completed inside the box."""
        number, began = self._number(kind), self.box.elapsed
        points = self._shuffled(allotment.kept, number)
        cost = duration(self.ledger.round(allotment.kept, allotment.scale))
        text = f"{counted(len(allotment.kept), 'point')}, {cost}"
        name = f"round {shown} of {of}" if kind == "planned" else f"extra round {shown}"
        self._begin(number, kind, len(points), text, name)
        spent = self.ledger.spent
        self.runner.open(number)
        complete = self._measure_all(points, number, allotment.scale)
        self.runner.close()
        self.ledger.starts.append(max(0.0, self.box.elapsed - began - (self.ledger.spent - spent)))
        self.store.append_note(event="end", round=number, kind=kind, complete=complete)
        self._show_headlines()
        return complete

    def _begin(self, number: int, kind: str, points: int, text: str, name: str) -> None:
        self.screen.begin(f"{name}: {text}, {duration(self.box.left)} left", points)
        if any(c["round"] == number for c in self.store.conditions):
            return
        self.store.append_note(event="begin", round=number, kind=kind)
        self.store.append_conditions(number, self.runner.conditions())

    def _shuffled(self, points: Sequence[Planned], number: int) -> list[Planned]:
        """The visits of a round in random order, the same when it is resumed.

        Burst comes first, on a cool device; several visits of a point spread over the round. Where each
        family has a process of its own they come family by family.
        """
        return shuffled(points, f"{self.seed}/{number}", self.history.lost(), self.runner.by_family)

    def _measure_all(self, points: Sequence[Planned], number: int, scale: float) -> bool:
        warm, dead = False, ""
        for order, planned in enumerate(map(self.history.fitted, points)):
            if self.store.holds(number, planned.key, planned.visit) or planned.point.family == dead:
                continue
            if self.box.left <= 0 and (number > 1 or planned.priority > 0 or planned.visit > 0):
                return False
            if planned.regime != "burst" and not warm:
                self._warm_up()
                warm = True
            if self._measure(planned, order, scale, order).facts.get("lost") and self.runner.by_family:
                dead = planned.point.family
        return True

    def _warm_up(self) -> None:
        self.runner.warm_up(GPU_WARM_UP if self.runner.by_family else WARM_UP)

    def _measure(self, planned: Planned, order: int, scale: float, done: int) -> Sample:
        """Measure and keep a point; where its arrays find no memory, once more with smaller ones."""
        self.screen.point(named(planned.point, self.plan.unit), done, self.box.left)
        touching = 3 * planned.point.sizes.get("bytes", 0) / TOUCHED_PER_SECOND
        limit = PATIENCE + 20 * planned.budget + (0.0 if self.runner.by_family else touching)
        limit = min(limit, max(self.box.left, 0.0) + max(GRACE, 2 * planned.budget + planned.settle))
        whole = 1.0 if planned.settle else scale
        sample = self.runner.measure(self._calibrated(planned), order, whole, limit)
        self.store.append(sample)
        self.ledger.add(planned, sample)
        smaller = self.history.learn(planned, sample)
        return sample if smaller is None else self._measure(smaller, order, scale, done)

    def _calibrated(self, planned: Planned) -> Planned:
        """With the amount that the last round found right, so that a new process need not seek it again."""
        last = self.latest.get(planned.key)
        if last is None or not (amount := int(last.facts.get("amount", 0))):
            return planned
        return replace(planned, amount=amount, expected=median(last.repetitions.seconds))

    @property
    def latest(self) -> Mapping[str, Sample]:
        """The newest good sample of every point."""
        for sample in self.store.samples[self._read :]:
            if sample.status == "ok":
                self._latest[key_of(sample)] = sample
        self._read = len(self.store.samples)
        return self._latest

    # -- what is still wide ------------------------------------------------------------------

    def extra_rounds(self, points: Sequence[Planned]) -> None:
        """Spend what is left of the box: see _wide, until all have converged."""
        for extra in range(EXTRA_ROUNDS):
            chosen = tuple(self._fitting(self._wide(self.history.worth_it(points))))
            if not chosen or not self._round("extra", Allotment(1, 1.0, chosen, ()), extra + 1, 0):
                break

    def _wide(self, points: Sequence[Planned]) -> list[Planned]:
        """Points with too few rounds for a verdict, the widest ceilings, then what was planned for few."""
        rates: dict[str, list[float]] = defaultdict(list)
        rounds: dict[str, set[int]] = defaultdict(set)
        q = {p.key: p.q for p in points}
        for sample in self.store.samples:
            key = key_of(sample)
            if sample.round > 0 and key in q and (value := rate(sample, q[key])) is not None:
                rates[key].append(value)
                rounds[key].add(sample.round)
        few = [p for p in points if 0 < len(rounds[p.key]) < MIN_ROUNDS and p.regime != "sustained"]
        few.sort(key=lambda p: p.priority)
        widths = {key: interval(values).half_width for key, values in rates.items()}
        over = {p.key: (widths.get(p.key) or 0.0) / p.cap for p in points if _is_ceiling(p) and p not in few}
        wide = sorted((p for p in points if over.get(p.key, 0.0) > 1.0), key=lambda p: -over[p.key])
        return [*(p for p in few if not p.times), *wide, *(p for p in few if p.times)]

    def _fitting(self, points: Sequence[Planned]) -> list[Planned]:
        """As many as one extra round may take."""
        room = min(self.box.left, EXTRA_SHARE * self.box.seconds) - self.ledger.start
        chosen = []
        for planned in points:
            room -= self.ledger.predict(planned, 1.0)
            if room < 0:
                break
            chosen.append(planned)
        return chosen

    def unmeasured(self, points: Sequence[Planned]) -> list[str]:
        """In words, what of the plan was measured in no round, and what in fewer than the others."""
        counts = Counter(key_of(s) for s in self.store.samples if s.round > 0)
        dead = self.history.dead_families()
        never = [
            p for p in map(self.history.fitted, points) if not counts[p.key] and p.point.family not in dead
        ]
        groups = Counter((p.point.kernel, p.point.precision.label, p.point.scope) for p in never)
        texts = [
            f"{kernel} {precision} ({scope}): {counted(n, 'point')}, the time box ended first"
            for (kernel, precision, scope), n in groups.items()
        ]
        whole = self._complete()
        few = sum(0 < counts[p.key] < p.rounds(whole) * p.visits / 2 for p in self.history.worth_it(points))
        return texts + ([f"{counted(few, 'point')} measured in fewer rounds than the rest"] if few else [])


def _is_ceiling(planned: Planned) -> bool:
    family, sizes = planned.point.family, planned.point.sizes
    return (family in ("fma", "stream", "gemm", "tensor") and "window" not in sizes) or "plateau" in sizes
