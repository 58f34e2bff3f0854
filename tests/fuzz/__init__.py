"""Fuzzing by coverage: `python -m tests.fuzz TARGET`."""
