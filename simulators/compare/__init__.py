"""Comparison of delivery modes, and of the product without dedup, on one scenario and seed."""
