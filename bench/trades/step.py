"""One step of training and how devices share it: data-, tensor- and pipeline-parallel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.trades.cost import Cost


@dataclass(frozen=True)
class Step:
    """A step, forward and backward, of the whole batch: what all devices do together.

    flops FLOP; moved byte through memory; parameters: a number, `item` byte each
    state: byte of weights, gradients and optimizer for each parameter
    activations: byte kept from forward to backward;  boundary: those at the edge of one of `layers` layers
    reductions: all-reduces of a boundary in each layer where layers are split over devices
    """

    flops: float
    moved: float
    parameters: float
    item: float
    state: float
    activations: float
    boundary: float
    layers: int
    reductions: int = 4

    @property
    def gradients(self) -> float:
        """Bytes that devices with their own part of the batch have to sum."""
        return self.parameters * self.item

    def in_items_of(self, size: float) -> Step:
        """The same step in numbers of `size` byte; the state stays, as mixed precision keeps it."""
        factor = size / self.item
        return replace(
            self,
            item=size,
            moved=self.moved * factor,
            activations=self.activations * factor,
            boundary=self.boundary * factor,
        )

    def recomputed(self) -> Step:
        """Only layer boundaries are kept and each layer's forward part, a third of the work, is done again.

        Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.
        """
        return replace(
            self,
            flops=self.flops * 4 / 3,
            moved=self.moved * 4 / 3,
            activations=min(self.activations, self.layers * self.boundary + self.activations / self.layers),
            reductions=self.reductions + self.reductions // 2,
        )


@dataclass(frozen=True)
class Split:
    """How many devices share a step, and into how many micro-batches a pipeline cuts it."""

    devices: int
    micro_batches: int


def ring(volume: float, devices: int) -> tuple[float, float]:
    """Bytes that each device sends and messages one after another of a ring all-reduce of `volume` byte."""
    return 2 * (devices - 1) / devices * volume, 2.0 * (devices - 1)


def alone(step: Step) -> Cost:
    """All of it on one device."""
    return Cost(step.flops, step.moved, held=step.state * step.parameters + step.activations)


def data(step: Step, split: Split) -> Cost:
    """Each device has all weights and its share of the batch; gradients are summed by a ring."""
    n = split.devices
    sent, messages = ring(step.gradients, n)
    held = step.state * step.parameters + step.activations / n
    return Cost(step.flops / n, step.moved / n, sent, messages, held=held)


def tensor(step: Step, split: Split) -> Cost:
    """Each device has its share of every layer and all of the batch (Shoeybi et al., Megatron-LM, 2019)."""
    n = split.devices
    sent, messages = ring(step.boundary, n)
    times = step.layers * step.reductions
    held = (step.state * step.parameters + step.activations) / n
    return Cost(step.flops / n, step.moved / n, times * sent, times * messages, held=held)


def pipeline(step: Step, split: Split) -> Cost:
    """Each device has its share of the layers; micro-batches follow each other (Huang et al., GPipe, 2019).

    A boundary goes forward and its gradient back; filling and draining takes (devices - 1) / micro_batches.
    """
    n, m = split.devices, split.micro_batches
    held = (step.state * step.parameters + step.activations) / n
    return Cost(
        step.flops / n, step.moved / n, 2 * step.boundary, 2.0 * m, held=held, stretch=1 + (n - 1) / m
    )


Mode = Callable[[Step, Split], Cost]

PIPELINE = "pipeline"
"""The mode that needs a layer for each device."""

MODES: dict[str, Mode] = {"data": data, "tensor": tensor, PIPELINE: pipeline}
"""How devices may share a step, by the name that --parallel takes."""
