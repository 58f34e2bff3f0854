"""What the CoAP way in has seen, counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counts since the start; read by anyone, written in the loop's thread only."""

    fast: int = 0
    """Requests that the fast path took in."""
    odd: int = 0
    """Datagrams handed to aiocoap."""
    duplicates: int = 0
    """Retransmissions of a request that the fast path has in work or has answered."""
    shed: int = 0
    """Odd datagrams dropped unread, for want of budget; a sensor's retransmission tries again."""
    refused: int = 0
    """Requests refused, since too many were in work."""
    malformed: int = 0
    """Datagrams that are no message, or none that a server ever gets."""
    bad_options: int = 0
    """Requests with a critical option that we do not know (RFC 7252 section 5.4.1)."""
    unprotected: int = 0
    """Plain requests refused, since OSCORE is required."""
    truncated: int = 0
    """Datagrams larger than any that we take."""
    group: int = 0
    """Datagrams sent to a multicast group, dropped: we join none."""
    separate: int = 0
    """Responses that came too late for the ACK."""
    retransmitted: int = 0
    """Separate responses sent again."""
    given_up: int = 0
    """Separate responses that nobody acknowledged."""
    send_failed: int = 0
    """Datagrams that the kernel did not take; as if lost on the way."""
    receive_failed: int = 0
    """Reads of the socket that failed."""
