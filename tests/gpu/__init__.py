"""Tests that need a GPU; without one each is skipped with the reason."""
