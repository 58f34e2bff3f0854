"""Replay: sends kept events again, by a producer of its own, without changing the store (decision 19)."""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from confluent_kafka import KafkaException, Producer

from agent.config.settings import KafkaSettings
from agent.forward.errors import SessionError
from agent.forward.kafka.client import LastError, describe, open_admin, open_signer, producer_config
from agent.forward.kafka.record import encode
from agent.forward.kafka.topic import TopicWatch, partition_of
from agent.forward.modes.at_least_once import AtLeastOnce
from agent.forward.modes.in_flight import InFlightBatch
from agent.forward.modes.session import POLL_SECONDS_MAX, discard, hand_over, serve
from agent.store.port import StoredEvent

OUTSTANDING_MAX: Final = 5_000
"""How many records may be sent and not reported."""


def send_again(
    settings: KafkaSettings, gateway: str, events: Iterable[StoredEvent], progress: Callable[[int], None]
) -> int:
    """Send events at least once, labels and fingerprints unchanged; return how many, all acked by the broker.

    `progress` is called with the number acked so far. Raise KafkaSettingsError, and SessionError unless all are acked.
    """
    config, sign = producer_config(settings, AtLeastOnce.fixed), open_signer(settings)
    errors = LastError()
    view = TopicWatch(open_admin(settings, errors), settings.topic, errors).read_view(threading.Event())
    partition = partition_of(settings, gateway, view.partitions)
    producer = Producer({**config, "error_cb": errors})
    in_flight = InFlightBatch(0, {})
    check = partial(_check, in_flight, errors)

    def wait(outstanding: int) -> None:
        while in_flight.unreported > outstanding:
            serve(producer, POLL_SECONDS_MAX)
            check()
            progress(in_flight.events - in_flight.unreported)

    try:
        for event in events:
            record = encode(event, gateway, sign)
            if not hand_over(producer, settings.topic, record, in_flight.report, check, partition):
                raise SessionError(f"epoch {event.label.epoch}, sequence {event.label.sequence}: too large for Kafka")
            in_flight.sent(event.position)
            wait(OUTSTANDING_MAX)
        wait(0)
        check()
    except KafkaException as error:
        raise SessionError(describe(error)) from error
    finally:
        discard(producer)
    return in_flight.events


def _check(in_flight: InFlightBatch, errors: LastError) -> None:
    failure = errors.fatal or in_flight.failure
    if failure is not None:
        acked = in_flight.events - in_flight.unreported
        raise SessionError(f"{errors.text or failure}; at most {acked} events have reached Kafka: run it again")
