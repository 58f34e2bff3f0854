"""The bounds of the HTTP way in: none of them is worth a setting, and every one of them has its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes, numbers and times; what a client that is slow or greedy can take from the others."""

    connections_max: int = 256
    """Open at a time; one more is closed at once. Half of them may come from one address, or one /64 of IPv6."""
    tls_connections_max: int = 128
    """The same with TLS, from the first packet on: each has a buffer of 256 KiB in asyncio, and OpenSSL's own."""
    requests_in_work_max: int = 64
    """Whose bodies are read or stored at a time; times the largest body, this bounds the memory."""
    head_bytes_max: int = 16_384
    """Of a request line and its fields."""
    head_seconds_max: float = 15.0
    """From the end of the previous request, or the beginning of the connection, to the end of a head; also the time for
    a TLS handshake, and for the end of TLS."""
    body_seconds_max: float = 30.0
    """Also how long a client may read nothing of its answer."""
    answers_bytes_max: int = 8 << 20
    """Of answers beyond one piece that are being sent; more are refused."""
    drain_seconds_max: float = 10.0
    """How long a server that is closed waits for the outcomes in work."""
