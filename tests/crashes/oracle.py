"""What a store contains after a crash, and what is wrong with that."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agent.store.read.events import Epochs, read_packed
from agent.store.recovery.verify import verify
from agent.store.schema import database
from contract.event import Label
from tests.crashes.sensor import DEVICE


@dataclass(frozen=True, slots=True)
class Contents:
    """The stored events of a sensor in order of their labels, and all labels."""

    events: tuple[tuple[int, str, Label], ...]
    """Id, text and label."""
    labels: tuple[Label, ...]
    """Of all events, the gateway's own included."""


def read(store: Path) -> Contents:
    """Read a store."""
    events, labels = [], []
    with closing(database.open_for_reading(store)) as connection:
        epochs = Epochs.load(connection)
        for event in read_packed(connection, 1, 1 << 40):
            document = json.loads(b"{" + event.tail + b"}")
            labels.append(epochs.label(event.position))
            if document["device"] == DEVICE:
                events.append((document["id"], document["data"]["text"], labels[-1]))
    return Contents(tuple(events), tuple(labels))


def faults(store: Path, before: Contents, texts: Mapping[int, str], acked: Collection[int]) -> list[str]:
    """Return what is wrong with a store of which these events were acked, and which had these contents before."""
    after = read(store)
    copies = Counter(number for number, _, _ in after.events)
    found = [f"event {number} is acked and not there" for number in sorted(set(acked) - copies.keys())]
    found += [f"event {number} is there {count} times" for number, count in sorted(copies.items()) if count > 1]
    found += [f"event {number} has another text" for number, text, _ in after.events if texts[number] != text]
    found += [f"label {label} is there twice" for label, count in Counter(after.labels).items() if count > 1]
    labels = {number: label for number, _, label in after.events}
    found += [f"event {number} has another label" for number, _, label in before.events if labels.get(number) != label]
    found += [f"verify: {defect.check}: {defect.text}" for defect in verify(store).findings]
    return found
