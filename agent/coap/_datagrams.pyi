class Receiver:
    """Buffers for many datagrams at once."""

    def __init__(self, datagram_bytes_max: int, count_max: int) -> None: ...
    def receive(self, descriptor: int, /) -> list[tuple[bytes, bytes, bool]]:
        """Return the datagrams that wait at a socket, each with its peer and whether it was cut.

        A peer is struct sockaddr_in6 of the sensor, then struct in6_pktinfo (RFC 3542) where the kernel reports it.
        Raises OSError.
        """

def send(descriptor: int, pairs: list[tuple[bytes, bytes]], /) -> int:
    """Send datagrams, each to its peer; return how many the kernel refused. Does not wait."""
