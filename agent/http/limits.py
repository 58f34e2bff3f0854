"""The bounds of the HTTP server, which are not configurable."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes, numbers and times: the bounds of what one client can take from the others."""

    connections_max: int = 256
    """Open at a time; one more is closed at once. One address, or one /64 of IPv6, may have half of them."""
    tls_connections_max: int = 128
    """The same with TLS, from the first packet on: each has a buffer of 256 KiB in asyncio, and OpenSSL's own."""
    requests_in_progress_max: int = 64
    """Requests whose bodies are read or stored at a time; times the largest body, this bounds the memory."""
    head_bytes_max: int = 16_384
    """Of a request line and its fields."""
    head_seconds_max: float = 15.0
    """From the end of the previous request, or the beginning of the connection, to the end of a head; also the time for
    a TLS handshake, and for the end of TLS, and how long a client may read nothing of its answer."""
    body_seconds_max: float = 30.0
    """From the beginning of a body to its end."""
    answers_bytes_max: int = 8 << 20
    """Of all answers larger than one piece that are being sent; more are refused."""
    drain_seconds_max: float = 10.0
    """How long a closing server waits for the requests in progress."""
