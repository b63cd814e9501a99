"""The kernel families, in report order."""
