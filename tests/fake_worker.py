"""The measuring process with the fake device in it: `python -m tests.fake_worker FAULTS PARENT`."""

from __future__ import annotations

import json
import sys

from bench.running import worker
from tests.fake_device import FakeBackend


def main() -> None:
    faults = json.loads(sys.argv[1])
    worker.die_with(int(sys.argv[2]))
    opened = worker.Worker(lambda device: FakeBackend(faults=faults, real=True))
    worker.serve(sys.stdin, worker.own_stdout(), opened)


if __name__ == "__main__":
    main()
