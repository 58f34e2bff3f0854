"""Delivery: the three modes."""
