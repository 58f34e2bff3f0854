"""Decodes the bytes of a delivery into events."""

from agent.decode.decoded import (
    REJECTED_BYTES_MAX,
    Decoded,
    DecodeError,
    InvalidEvent,
    Rejected,
    Undecodable,
    UnknownFormat,
)
from agent.decode.delivery_body import decode

__all__ = [
    "REJECTED_BYTES_MAX",
    "DecodeError",
    "Decoded",
    "InvalidEvent",
    "Rejected",
    "Undecodable",
    "UnknownFormat",
    "decode",
]
