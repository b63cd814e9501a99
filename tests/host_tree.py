"""A made-up /proc and /sys tree of a host, written file by file."""

from __future__ import annotations

from pathlib import Path

from bench import host
from bench.device import Device

MILAN = "fpu sse2 ssse3 fma avx avx2 f16c"


class Machine:
    """A /proc and /sys tree in a folder, written file by file."""

    def __init__(
        self, root: Path, count: int, flags: str = MILAN, name: str = "AMD EPYC 7763 64-Core Processor"
    ):
        self.root = root
        self.made: set[Path] = set()
        block = (
            "processor\t: {}\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n"
            f"model name\t: {name}\nstepping\t: 1\nmicrocode\t: 0xa\nflags\t\t: {flags}\n"
        )
        self.write("proc/cpuinfo", "\n".join(block.format(n) for n in range(count)))
        self.write("proc/meminfo", f"MemTotal:  {512 << 20} kB\nMemAvailable: 1000 kB\n")
        self.write("proc/loadavg", "0.10 0.20 0.30 1/200 4242\n")
        self.write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
        self.write("sys/devices/system/cpu/online", f"0-{count - 1}\n")
        self.all = frozenset(range(count))

    def write(self, path: str, words: object) -> None:
        target = self.root / path
        if target.parent not in self.made:
            target.parent.mkdir(parents=True, exist_ok=True)
            self.made.add(target.parent)
        target.write_text(str(words))

    def cache(self, cpu: int, index: int, level: int, size: str, shared: str, kind: str = "Unified") -> None:
        for name, word in (("level", level), ("size", size), ("shared_cpu_list", shared), ("type", kind)):
            self.write(f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{name}", f"{word}\n")

    def node(self, number: int, cpus: str, gib: int) -> None:
        self.write(f"sys/devices/system/node/node{number}/cpulist", cpus + "\n")
        self.write(
            f"sys/devices/system/node/node{number}/meminfo", f"Node {number} MemTotal: {gib << 20} kB\n"
        )

    def device(self, cpus: frozenset[int] | None = None, machine: str = "x86_64") -> Device:
        return host.cpu_device(self.root, self.all if cpus is None else cpus, {}, machine)
