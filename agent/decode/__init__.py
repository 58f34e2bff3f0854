"""Decodes the bytes of a delivery into events."""
