"""Sensor models, one kind per file; each records what it does in the ledger."""
