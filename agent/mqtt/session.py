"""The agent's session at the broker, as the store remembers it: its secret name, and how often it was lost."""

import json
import logging
import secrets
from dataclasses import asdict, dataclass, replace
from typing import Final

from agent.clock import Clock
from agent.config.settings import MqttSettings
from agent.store.facts import MQTT_SESSION
from agent.store.port import Outbox
from contract.notes import read_note

SECRET_BYTES: Final = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerSession:
    """The durable fact about the session."""

    secret: str
    """The random part of the client id: whoever knows the id can take the session, and the messages that wait in it."""
    seen: str = ""
    """The client id and the broker with which there was a session; empty before the first."""
    lost: int = 0
    """How often the broker no longer had it."""
    lost_at: int | None = None
    """The last time, in milliseconds since 1970 UTC, by the gateway's clock."""


def read_session(fact: str | None) -> BrokerSession | None:
    """Return the session that a fact describes; None before the first connection."""
    return read_note(BrokerSession, json.loads(fact)) if fact else None


class SessionKeeper:
    """Names the session, and notices where the broker has lost it; its methods block, and raise OutboxError."""

    def __init__(self, facts: Outbox, clock: Clock, gateway: str, settings: MqttSettings) -> None:
        self._facts = facts
        self._clock = clock
        self.gateway = gateway
        self.broker = f"{settings.host}:{settings.port}"

    def client_id(self) -> str:
        """Return the client id; a new one is on disk before it is used, or its messages could not be received."""
        session = self._read()
        if session is None:
            session = BrokerSession(secrets.token_hex(SECRET_BYTES))
            self._write(session)
        return f"oncegate-{self.gateway}-{session.secret}"

    def note(self, *, present: bool) -> None:
        """Note a connection, and whether the broker still had the session."""
        seen, before = f"{self.client_id()} at {self.broker}", self._read()
        assert before is not None  # written with the id
        if before.seen == seen and not present:
            effect = "the messages that it had queued for the agent are lost"
            _log.warning("mqtt=session-lost broker=%s effect=%r", self.broker, effect)
            self._write(replace(before, lost=before.lost + 1, lost_at=self._clock.wall_ms()))
        elif before.seen != seen:
            self._write(replace(before, seen=seen))

    def _read(self) -> BrokerSession | None:
        return read_session(self._facts.fact(MQTT_SESSION))

    def _write(self, session: BrokerSession) -> None:
        self._facts.set_fact(MQTT_SESSION, json.dumps(asdict(session)))
