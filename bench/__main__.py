"""`python -m bench`: hand the command line to the verbs, or say in words what this Python lacks."""

import gc
import sys

COLLECT_AFTER = 200_000
"""New containers before cyclic garbage is looked for. Python's own 700 makes a process that imports much and
keeps thousands of samples look through all of them again and again: a fifth of a simulated run's time."""


def start() -> None:
    """Run the command line; too old a Python, a missing package or Ctrl-C ends in one sentence."""
    gc.set_threshold(COLLECT_AFTER)
    found = sys.version_info[:2]
    if found < (3, 10):
        said = f"this is Python {found[0]}.{found[1]}: name one of 3.10 to 3.13, or type `make bench`"
        _refuse(3, f"Error: {said}")
    try:
        from bench.cli import main
    except (ImportError, KeyboardInterrupt) as error:
        from bench.outcome import told

        _refuse(*told(error))
    main()


def _refuse(code: int, line: str) -> None:
    print(line, file=sys.stderr)
    raise SystemExit(code) from None


if __name__ == "__main__":
    start()
