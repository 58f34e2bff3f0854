"""The partition of a gateway's events, where its own id decides it in place of each event's device."""

from __future__ import annotations

from typing import Final

from agent.config.settings import KafkaSettings

BY_KEY: Final = -1
"""The partition that the key decides."""
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def partition_of(settings: KafkaSettings, gateway: str, partitions: int) -> int:
    """Return the partition of all events of a gateway; BY_KEY where it depends on the device."""
    return BY_KEY if settings.spread == "device" else (murmur2(gateway.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the hash by which Kafka's own producers choose a key's partition (Utils.murmur2), without a sign."""
    hashed = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _FACTOR & _MASK
        hashed = (hashed * _FACTOR & _MASK) ^ ((word ^ word >> 24) * _FACTOR & _MASK)
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15
