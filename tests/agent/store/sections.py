"""Computes the digests that a gateway states from its events, without the agent's code."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from agent.store.port import StoredEvent
from contract.event import Label
from tests.agent.store.stores import document


@dataclass(frozen=True, slots=True)
class Statement:
    """A section of an epoch, with the digest that the event which follows it states."""

    epoch: str
    first: int
    last: int
    digest: str


def statements(events: Iterable[StoredEvent]) -> list[Statement]:
    """Return the statements of events, in their order."""
    found = []
    for event in events:
        entries = document(event)
        data = entries.get("data", {})
        if entries["type"] == "gateway.checkpoint":
            found.append(Statement(event.label.epoch, data["first"], data["last"], data["digest"]))
        elif entries["type"] == "gateway.started" and "previous_digest" in data:
            ended = data["previous_epoch"], data["previous_first"], data["previous_sequence"]
            found.append(Statement(*ended, data["previous_digest"]))
    return found


@dataclass(slots=True)
class Witness:
    """Remembers each event by its label, and compares each statement with the events that it is about."""

    contents: dict[Label, bytes] = field(default_factory=dict)
    verified: set[Statement] = field(default_factory=set)

    def see(self, events: Iterable[StoredEvent]) -> None:
        """Remember events; raise AssertionError where a statement differs from them."""
        seen = list(events)
        for event in seen:
            self.contents[event.label] = event.fingerprint + event.tail
        for statement in set(statements(seen)) - self.verified:
            labels = [Label(statement.epoch, number) for number in range(statement.first, statement.last + 1)]
            assert labels, statement
            if all(label in self.contents for label in labels):
                assert digest([self.contents[label] for label in labels]) == statement.digest, statement
                self.verified.add(statement)


_INTEGER_ID = re.compile(rb'"id":"(0|[1-9][0-9]*)"')
"""As the name of an epoch may read, one of two thousand."""


def digest(contents: Iterable[bytes]) -> str:
    """Return the digest of a section; an id that is a text, but reads as an integer, counts as that integer."""
    found = bytes(32)
    for content in contents:
        found = sha256(found + sha256(_INTEGER_ID.sub(rb'"id":\1', content, count=1)).digest()).digest()
    return found.hex()
