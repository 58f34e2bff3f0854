"""What one way to recognise copies costs over one recorded topic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figures:
    """One way to recognise copies, over one recorded topic."""

    way: str
    rate: float | None
    """The false-positive rate that the filters were made for; None for the exact index."""
    bytes_per_key: float
    copies: int
    """What it takes for copies."""
    lost: int
    """Real events among them."""
    look_ups: int
    """Look-ups in the exact index."""
    cpu_seconds: float
