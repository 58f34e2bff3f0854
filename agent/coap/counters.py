"""The counters of the CoAP server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.delivery import Refuse, refuse_uncounted

_UNSERVED: Final[tuple[str, ...]] = (
    *("shed", "busy", "malformed", "truncated", "group", "unprotected"),
    *("unknown_context", "replayed", "undecryptable", "send_failed"),
)


@dataclass(slots=True)
class Counters:
    """Counts since the start; written in the loop's thread only, read in any."""

    refuse: Refuse = refuse_uncounted
    """Counts a request that is refused before it is a delivery, beside those of the other protocols."""
    fast: int = 0
    """Requests that the fast path has accepted for processing."""
    duplicates: int = 0
    """Retransmissions of a request that the fast path has in progress or has answered."""
    shed: int = 0
    """Datagrams of the slow path beyond its budget, refused or dropped unread."""
    busy: int = 0
    """Requests refused, since too many were in progress."""
    malformed: int = 0
    """Datagrams that are no message, or none that a server should receive."""
    unprotected: int = 0
    """Plain requests refused, since OSCORE is required."""
    truncated: int = 0
    """Datagrams beyond the maximum size."""
    group: int = 0
    """Datagrams sent to a multicast group, dropped: the server joins none."""
    send_failed: int = 0
    """Datagrams that the kernel refused to send; equivalent to loss on the network."""
    replayed: int = 0
    """Requests under OSCORE whose number was used before."""
    undecryptable: int = 0
    """Requests under OSCORE that cannot be decrypted."""
    unknown_context: int = 0
    """Requests under OSCORE of which no credential is known."""

    def unserved(self) -> Mapping[str, int]:
        """Return how many datagrams had no effect, by reason, for the metrics; `send_failed` are answers."""
        return {name.replace("_", "-"): getattr(self, name) for name in _UNSERVED}
