"""Throughput and cost of the gateway's inputs, beside alternatives: `python -m benchmarks.agent`."""
