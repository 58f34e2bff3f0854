"""Reads new events from the outbox in the lane's turn, as fast as the uplink's cap allows."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, Producer

from agent.forward.delivery.produce import serve
from agent.forward.delivery.session import BATCH_BYTES_MAX, BATCH_EVENTS_MAX, POLL_SECONDS_MAX, SessionContext
from agent.store.port import StoredEvent


def wait_for_new(context: SessionContext, producer: Producer, after: int, seconds: float) -> bool:
    """Wait for a new event above a position that may be sent now, or a returned batch.

    While it is another lane's turn, or the cap forbids it, or events are gathered, the producer is served.
    """
    gathering = context.gathering
    if gathering is not None and not gathering.is_due(after) and (left := gathering.seconds_left()):
        if context.turn is not None:
            context.turn.ask(has_events=False)
        serve(producer, min(seconds, left))
        return False
    if context.turn is not None and not context.turn.ask(has_events=context.outbox.wait(after, 0)):
        serve(producer, min(seconds, POLL_SECONDS_MAX))
        return False
    if context.uplink is not None and not context.uplink.is_open():
        serve(producer, min(seconds, POLL_SECONDS_MAX))
        return False
    is_new = context.outbox.wait(after, seconds)
    return is_new if gathering is None else is_new and gathering.is_due(after)


def read_new(context: SessionContext, after: int) -> Sequence[StoredEvent]:
    """Read new events above a position: a batch, or as much of one as the cap allows at once.

    There may be none where some of them have expired.
    """
    uplink = context.uplink
    bytes_max = BATCH_BYTES_MAX if uplink is None else min(BATCH_BYTES_MAX, uplink.bytes_max)
    events = context.outbox.read(after, BATCH_EVENTS_MAX, bytes_max)
    if context.expiry is not None:
        events = context.expiry.unexpired(events)
    return events


def process_reports(context: SessionContext, *clients: Producer | Consumer) -> None:
    """Process what a session's clients report for the cap, in each turn of the session.

    Twice a second each client queues 10 KiB or more (`STATISTICS_MS`), without limit, until it is polled.
    """
    if context.uplink is not None:
        context.watch.serve()
        for client in clients:
            client.poll(0)


def count_for_cap(context: SessionContext, events: Sequence[StoredEvent]) -> None:
    """Count events on a capped uplink when the producer takes them: some that were read may wait."""
    if context.uplink is not None:
        context.uplink.hand_over(len(events), sum(len(event.tail) for event in events), context.lane)
