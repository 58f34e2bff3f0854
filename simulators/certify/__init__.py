"""Judges a consumer that gives receipts by docs/receipts.md: real broker, simulated gateways, faults, a verdict."""
