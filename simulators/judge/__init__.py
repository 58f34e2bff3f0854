"""Judging a run by its ledger and by the sink of its events."""
