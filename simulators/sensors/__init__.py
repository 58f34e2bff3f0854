"""Sensor models, one kind per file; each records its actions in the ledger."""
