"""Receipts: what the table has."""
