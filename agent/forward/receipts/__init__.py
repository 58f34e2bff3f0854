"""Receipts: which events the table has."""
