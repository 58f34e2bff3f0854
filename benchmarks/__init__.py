"""Benchmarks that measure this product, its alternatives and the physical limit in one run on one machine."""
