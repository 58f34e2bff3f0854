"""The counters of the CoAP server."""

from __future__ import annotations

from dataclasses import dataclass

from agent.delivery import Refuse, refuse_uncounted


@dataclass(slots=True)
class Counters:
    """Counts since the start; written in the loop's thread only, read in any."""

    refuse: Refuse = refuse_uncounted
    """Counts a request that is refused before it is a delivery, beside those of the other protocols."""
    fast: int = 0
    """Requests that the fast path has accepted for processing."""
    slow: int = 0
    """Datagrams passed to aiocoap."""
    duplicates: int = 0
    """Retransmissions of a request that the fast path has in progress or has answered."""
    shed: int = 0
    """Datagrams of the slow path dropped unread, beyond its budget; a sensor's retransmission tries again."""
    refused: int = 0
    """Requests refused, since too many were in progress."""
    malformed: int = 0
    """Datagrams that are no message, or none that a server should receive."""
    unprotected: int = 0
    """Plain requests refused, since OSCORE is required."""
    truncated: int = 0
    """Datagrams beyond the maximum size."""
    group: int = 0
    """Datagrams sent to a multicast group, dropped: the server joins none."""
    separate: int = 0
    """Responses sent separately, after an empty ACK."""
    retransmitted: int = 0
    """Separate responses sent again."""
    given_up: int = 0
    """Separate responses that were never acknowledged."""
    send_failed: int = 0
    """Datagrams that the kernel refused to send; equivalent to loss on the network."""
