"""The forwarder: sends everything new in the outbox to Kafka, in order, and retries until it is acked."""

import logging
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from confluent_kafka import KafkaException

from agent.backoff import Backoff
from agent.clock import Clock
from agent.config.settings import KafkaSettings
from agent.forward.errors import ClonedError, KafkaSettingsError, RefusedError, RenewalError, SessionError
from agent.forward.kafka.client import LastError, describe, open_admin, open_signer, producer_config
from agent.forward.kafka.connect import check_reachable
from agent.forward.kafka.health import TopicLink
from agent.forward.kafka.login_files import CHECK_SECONDS, Hours, LoginFiles, SessionStop, WallSteps
from agent.forward.kafka.topic import TopicWatch, create_command, partition_of
from agent.forward.modes.at_least_once import AtLeastOnce
from agent.forward.modes.at_most_once import AtMostOnce, InDoubtRecord
from agent.forward.modes.exactly_once import ExactlyOnce
from agent.forward.modes.lanes import Expiry, ForwardedLane, Gathering
from agent.forward.modes.oversized import Oversized
from agent.forward.modes.session import Mode, SessionContext
from agent.forward.receipts.round import SharedRound
from agent.store.facts import FORWARDER_STOPPED
from agent.store.port import Outbox, OutboxError
from agent.telemetry.links import Links

_log = logging.getLogger(__name__)

SILENCE_MS: Final = 10_000
"""How long there may be no delivery report before the broker counts as unreachable."""


class Forwarder:
    """Drains the outbox into the topic, in the configured delivery mode.

    An event is marked forwarded only after the broker has acked it with an offset, together with all before it in
    its batch, in a topic that had the same id before the first send and after the last ack. Until then it is new,
    and a later session sends it again. At most once is the exception: there an event is released before it is sent.
    """

    def __init__(  # noqa: PLR0913  # its parts
        self,
        settings: KafkaSettings,
        gateway: str,
        outbox: Outbox,
        clock: Clock,
        links: Links,
        random: Random,
        *,
        lane: ForwardedLane,
        silence_ms: int = SILENCE_MS,
        shared: SharedRound | None = None,
    ) -> None:
        """Create it; `shared` is None where there are no receipts."""
        self._settings = settings
        self._gateway = gateway
        self._outbox = outbox
        self._clock = clock
        self._backoff = Backoff(random)
        self._lane = lane
        lifetime = lane.time_to_live_seconds
        self._expiry = None if lifetime is None else Expiry(outbox, lifetime)
        self._mode = mode_of(settings, gateway, lane.name)
        self._silence_ms = silence_ms
        self._shared = shared
        self.hours = Hours(settings.hours, clock)
        self._oversized: Oversized | None = None
        """Shared by all sessions; read from the store by the first one."""
        self._link = TopicLink(links, create_command(settings))

    def run(self, stop: threading.Event) -> None:
        """Forward until `stop` is set; blocks, and needs a thread of its own.

        A broker that is unreachable, a topic that is missing and a session that fails are retried without limit.
        Raise KafkaSettingsError where no attempt could succeed.
        """
        producer_config(self._settings, self._mode.fixed)
        open_admin(self._settings, LastError())
        open_signer(self._settings)
        self._note_stop("")
        with suppress(OutboxError):  # the next start, or session in this mode, does so
            InDoubtRecord(self._outbox).abandon("the agent ended")
        while not stop.is_set():
            if begin := self.hours.next_begin():
                self._link.report_closed(begin)
                stop.wait(CHECK_SECONDS)
            elif not self._attempt(stop):
                # Without a client meanwhile: an open one would continue to connect.
                stop.wait(self._backoff.next_seconds())

    def _attempt(self, stop: threading.Event) -> bool:
        """Run a session; return False where the next one should wait."""
        session_stop = SessionStop(stop, LoginFiles(self._settings, self._clock), self.hours)
        try:
            self._run_session(stop, session_stop)
        except RefusedError:
            return True
        except RenewalError as change:
            _log.info("session=renewed reason=%r", str(change))
            return False
        except SessionError as failure:
            if session_stop.renewed:  # what it has not marked, the next one sends
                _log.debug("session=ended reason=%r", str(failure))
                return True
            if not stop.is_set():
                _log.debug("session=ended reason=%r", str(failure))
                self._link.report_failure(failure)
            return False
        except ClonedError as error:
            self._link.report_failure(error)
            self._note_stop(str(error))
        else:
            return True
        stop.wait()  # only here: the error's traceback holds the session's clients
        return True

    def _note_stop(self, reason: str) -> None:
        """Store for the commands why nothing is forwarded, unless the disk refuses."""
        try:
            if (self._outbox.fact(FORWARDER_STOPPED) or "") != reason:
                self._outbox.set_fact(FORWARDER_STOPPED, reason)
        except OutboxError:
            return  # the log and the link's state have it

    def _open_context(self) -> SessionContext:
        if self._oversized is None:
            after_ms = int(self._settings.oversized_after_seconds * 1000)
            self._oversized = Oversized(self._outbox, self._clock, after_ms)
        errors = LastError()
        opened = partial(open_admin, self._settings, errors, self._lane.uplink)
        admin = opened()
        gather = self._lane.gather_seconds
        return SessionContext(
            topic=self._settings.topic,
            gateway=self._gateway,
            outbox=self._outbox,
            watch=TopicWatch(admin, self._settings.topic, errors, opened),
            link=self._link,
            clock=self._clock,
            oversized=self._oversized,
            silence_ms=self._silence_ms,
            shared=self._shared,
            wall_steps=WallSteps(self._clock),
            gathering=Gathering(self._outbox, self._clock, gather) if gather else None,
            lane=self._lane,
            expiry=self._expiry,
            sign=open_signer(self._settings),
        )

    def _run_session(self, stop: threading.Event, session_stop: SessionStop) -> None:
        lane = self._lane
        check_reachable(self._settings.bootstrap_servers, stop)
        try:
            config = producer_config(self._settings, self._mode.fixed)
            if lane.uplink is not None:
                config |= lane.uplink.statistics(lane.name)
            context = self._open_context()
            topic = context.watch.read_view(stop)
            context = replace(context, partition=partition_of(self._settings, self._gateway, topic.partitions))
            context.link.report_reachable()
            if context.gathering is not None:
                session_stop.has_left = context.gathering.has_left
            session = self._mode.open(context, config, topic, stop)
            try:
                session.run(session_stop)
            finally:
                session.close()
                if lane.uplink is not None:
                    lane.uplink.producer_closed(lane.name)
                if lane.rank is not None:
                    lane.rank.ask(has_events=False)
                if session.marked:
                    self._backoff.reset()
        except KafkaSettingsError as error:  # the start could use the settings: a file is just being replaced
            raise SessionError(str(error)) from error
        except KafkaException as error:  # a certificate that is just being replaced; a fatal error, from any call
            raise SessionError(describe(error)) from error
        except OutboxError as error:  # a full disk refuses the intent, and must not end the agent
            raise SessionError(str(error)) from error


def transactional_id(gateway: str, lane: str = "") -> str:
    """Return the name under which a lane sends exactly once: a slash is in no gateway's id (decision 76)."""
    return f"{gateway}/{lane}" if lane else gateway


def mode_of(settings: KafkaSettings, gateway: str, lane: str = "") -> Mode:
    """Return the configured delivery mode, whose lane is "" for the default one; raise KafkaSettingsError."""
    match settings.delivery:
        case "exactly-once":
            return ExactlyOnce(settings, transactional_id(gateway, lane))
        case "at-most-once":
            return AtMostOnce()
        case "at-least-once":
            return AtLeastOnce()
        case unknown:
            raise KafkaSettingsError(f"kafka.delivery: no mode is named {unknown!r}")
