"""The counters of the CoAP server."""

from collections.abc import Mapping
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
    """Datagrams of the slow path beyond its budget, refused or dropped unread."""
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
    given_up: int = 0
    """Separate responses that were never acknowledged."""
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
        return {
            "shed": self.shed,
            "busy": self.refused,
            "malformed": self.malformed,
            "truncated": self.truncated,
            "group": self.group,
            "unprotected": self.unprotected,
            "unknown-context": self.unknown_context,
            "replayed": self.replayed,
            "undecryptable": self.undecryptable,
            "send-failed": self.send_failed,
        }
