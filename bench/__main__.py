"""`python -m bench`: hand the command line to the verbs."""

from __future__ import annotations

from bench.cli import main

if __name__ == "__main__":
    main()
