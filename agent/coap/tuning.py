"""The times and bounds of CoAP's messages (RFC 7252 section 4.8)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Defaults are the RFC's, but for the first."""

    empty_ack_seconds: float = 20.0
    """How long a request waits for its answer before an empty ACK. Late on purpose: an empty ACK ends the sensor's
    retransmissions, which preserve the event if the gateway fails before its commit."""
    ack_timeout_seconds: float = 2.0
    ack_random_factor: float = 1.5
    retransmits_max: int = 4
    exchange_lifetime_seconds: float = 247.0
    """How long an equal datagram from the same endpoint counts as a retransmission."""
    exchanges_max: int = 16_384
    """Requests in progress; more are refused."""
    answers_max: int = 4_096
    """Answers kept for retransmissions, about 200 bytes each; beyond them the store recognises retransmissions."""
    slow_per_second: float = 300.0
    """Budget of the slow path without OSCORE, about a twelfth of a core."""
    protected_per_second: float = 300.0
    """Budget of the slow path with OSCORE, about a quarter of a core."""
    refusals_per_second: float = 1_000.0
    """Requests beyond those budgets that get 5.03; more get no answer."""
    drain_seconds_max: float = 10.0
    """How long a closing server waits for the requests in progress."""
