"""Soak runs: the whole path for hours under random faults, judged at checkpoints."""
