"""The forwarder: everything new in the outbox goes to Kafka, in order, for as long as it takes."""

from __future__ import annotations

import threading
from random import Random

from confluent_kafka import KafkaException

from agent.clock import Clock
from agent.forward.backoff import Backoff
from agent.forward.client import LastError, describe, open_admin, producer_config
from agent.forward.error import SessionError
from agent.forward.link import Link
from agent.forward.mode import AtLeastOnce, Mode
from agent.forward.session import Session, Way
from agent.forward.topic import TopicWatch, create_command
from agent.settings import KafkaSettings
from agent.store.port import Outbox


class Forwarder:
    """Drains the outbox into the topic.

    An event is marked forwarded only after the broker has acked it with an offset, together with all before it in
    its batch, in a topic that bore the same id before the first send and after the last ack. Until then it is new,
    and a later session sends it again.
    """

    def __init__(self, settings: KafkaSettings, gateway: str, outbox: Outbox, clock: Clock, random: Random) -> None:
        self._settings = settings
        self._gateway = gateway
        self._outbox = outbox
        self._clock = clock
        self._backoff = Backoff(random)
        self._mode: Mode = AtLeastOnce(outbox)

    def run(self, stop: threading.Event) -> None:
        """Forward until `stop` is set; blocks, so it wants a thread of its own.

        A broker that is away, a topic that is missing and a session that fails are tried again for ever. Raises
        KafkaSettingsError where no attempt could succeed.
        """
        config = producer_config(self._settings, self._mode.fixed)
        way = self._open_way()
        while not stop.is_set():
            try:
                self._run_session(way, config, stop)
            except SessionError as failure:
                if not stop.is_set():
                    way.link.down(failure)
                    stop.wait(self._backoff.next_seconds())

    def _open_way(self) -> Way:
        errors = LastError()
        admin = open_admin(self._settings, errors)
        hint = create_command(self._settings.bootstrap_servers, self._settings.topic)
        return Way(
            topic=self._settings.topic,
            gateway=self._gateway,
            outbox=self._outbox,
            mode=self._mode,
            watch=TopicWatch(admin, self._settings.topic, errors),
            link=Link(self._clock, hint),
            clock=self._clock,
            oversized=set(),
        )

    def _run_session(self, way: Way, config: dict[str, object], stop: threading.Event) -> None:
        topic_id = way.watch.read(stop)
        way.link.answered()
        errors = LastError()
        try:
            producer = self._mode.begin({**config, "error_cb": errors})
        except KafkaException as error:  # such as a certificate that is just being replaced
            raise SessionError(describe(error)) from error
        session = Session(way, producer, errors, topic_id)
        try:
            session.run(stop)
        finally:
            session.close()
            if session.marked:
                self._backoff.reset()
