"""Measure how long one body holds the event loop: bodies that are made to be slow, through decoding and identity."""

from __future__ import annotations

from time import thread_time

from agent.config.settings import IdentitySettings
from agent.decode import Undecodable, decode
from agent.delivery import Delivery, Media
from agent.identity.identify import identify
from benchmarks import report
from benchmarks.bodies import BODY_BYTES, slow_bodies
from benchmarks.report import Figure
from contract.record import ClockTrust

ROUNDS = 7
"""Rounds for each body in each format; the fastest counts, since other processes disturb the measurement."""
GOAL_MS = 20.0
SHOWN = 5


def seconds(body: bytes, media: Media) -> float:
    """Return the seconds of this thread's CPU time that one delivery takes."""
    settings = IdentitySettings()
    start = thread_time()
    try:
        decoded = decode(Delivery(body, media, "coap", "coap://[fe80::1]"))
    except Undecodable:
        return thread_time() - start
    for event in decoded.events:
        identify(event, "coap", 0, ClockTrust.TRUSTED, settings)
    return thread_time() - start


def main() -> None:
    """Measure every body in every format, print the slowest and write the JSON."""
    bodies = slow_bodies()
    cases = {f"{name}, as {media.name}": (body, media) for name, body in bodies.items() for media in Media}
    # One round over all of them after the other: a slow moment of the machine must not catch all rounds of a body.
    rounds = [[seconds(*case) for case in cases.values()] for _ in range(ROUNDS)]
    least = (min(times) * 1000 for times in zip(*rounds, strict=True))
    found = sorted(zip(least, cases, (len(body) for body, _ in cases.values()), strict=True), reverse=True)
    slowest = found[0][0]
    figures = [Figure(f"longest of {len(found)}", slowest, "ms", f"≤ {GOAL_MS:.0f}", slowest <= GOAL_MS)]
    figures += [Figure(name, took, "ms", details={"bytes": length}) for took, name, length in found[:SHOWN]]
    report.keep("decode", figures, body_bytes=BODY_BYTES, rounds=ROUNDS)


if __name__ == "__main__":
    main()
