"""The figures of a method of detecting duplicates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figures:
    """The costs and losses of a method of detecting duplicates, over one recorded topic."""

    method: str
    rate: float | None
    """The false-positive rate that the filters are designed for; None for the exact index."""
    bytes_per_key: float
    duplicates: int
    """Records that were identified as duplicates."""
    lost: int
    """Real events among them."""
    look_ups: int
    """Look-ups in the exact index."""
    cpu_seconds: float
