"""Sensors as they are: each sort is one file, and all enter what they do into the ledger."""
