"""`make perf`: the suite's kernels against C references, interleaved in one run (python -m tests.perf)."""
