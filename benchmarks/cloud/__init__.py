"""Benchmarks of the cloud side, beside alternatives."""
