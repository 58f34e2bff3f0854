"""Decodes the bytes of a delivery into events."""

from agent.decode.decoded import REJECTED_BYTES_MAX, Decoded, Rejected
from agent.decode.delivery_body import decode
from agent.decode.error import DecodeError, InvalidEvent, Undecodable, UnknownFormat

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
