"""The section of the hash chain (`contract.chain`) that the next event continues, and how an opening finds its state.

No commit writes the state: it follows from the section's events, which are all kept but for those that a purge has
deleted (decision 77); the purge notes the state. A note names the label that it includes, which no other event ever
has: a note of another copy of the store, or of events that the store has lost, is recognised by that.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from agent.store.facts import SECTION
from agent.store.format.packing import CONTENT_AT, unpack_readable
from agent.store.port import StoredEvent
from agent.store.read.events import Epochs
from agent.store.schema import tables
from agent.store.schema.database import Reads
from contract.chain import DIGEST_START, extend
from contract.record import begins_section

SECTION_EVENTS: Final = 4_096
"""A section is closed once it has so many events; the commit that reaches the number belongs to it as a whole."""
SECTION_MS: Final = 6 * 3_600_000
"""A section with events is closed after so long, also where no event follows."""
_SEARCHED_EVENTS: Final = 4 * SECTION_EVENTS
"""How many of the latest events an opening searches for the section's beginning; more than any section has."""


@dataclass(slots=True)
class Section:
    """The latest section: all events from its first one to the store's last one."""

    first: int
    """Position of its first event, which states the digest of the section before."""
    digest: bytes
    since_ms: int
    """When it began, by the monotonic clock."""

    def append(self, packed: Sequence[bytes]) -> None:
        """Include the events of a commit that is on disk."""
        self.digest = extend(self.digest, [event[CONTENT_AT:] for event in packed])

    def is_due(self, end: int, now_ms: int) -> bool:
        """Whether its digest is to be stated; `end` is the position of the last event."""
        return end > self.first and (end - self.first >= SECTION_EVENTS - 1 or now_ms - self.since_ms >= SECTION_MS)


def note(section: Section, epochs: Epochs, end: int) -> tuple[str, str]:
    """Return the state as a fact, for a purge that deletes events of the section."""
    last = epochs.label(end)
    return SECTION, f"{last.epoch} {last.sequence} {epochs.label(section.first).sequence} {section.digest.hex()}"


def load(connection: Reads, epochs: Epochs, end: int, now_ms: int) -> Section | None:
    """Return the section of the last event, or None if an event of it is lost or damaged."""
    opened = epochs.last()
    if opened is None or end < opened[0]:
        return None
    known, section = _read_note(connection, opened, end, now_ms)
    appended: list[list[bytes]] = []
    following = end + 1
    with closing(tables.latest_commits(connection)) as commits:
        for first, count, packed in commits:
            if known == following - 1 or end - following >= _SEARCHED_EVENTS:
                break
            events = _read_whole(first, count, packed, following)
            if not events or first < opened[0]:
                return None
            appended.append([event.fingerprint + event.tail for event in events if event.position > known])
            following = max(first, known + 1)
            if known < first and begins_section(events[0].tail):
                known, section = first - 1, Section(first, DIGEST_START, now_ms)
    if section is None or known != following - 1:
        return None
    for contents in reversed(appended):
        section.digest = extend(section.digest, contents)
    return section


def _read_whole(first: int, count: object, packed: object, following: int) -> list[StoredEvent]:
    """Return a commit's events; none where it is damaged, or does not end right before `following`."""
    if not isinstance(count, int) or not isinstance(packed, bytes) or first + count != following:
        return []
    events = list(unpack_readable(first, count, packed))
    return events if len(events) == count else []


def _read_note(connection: Reads, opened: tuple[int, str], end: int, now_ms: int) -> tuple[int, Section | None]:
    """Return the note's last position and the state there; 0 and None for a note on other events."""
    words = (tables.read_fact(connection, SECTION) or "").split()
    if len(words) < 4 or words[0] != opened[1]:
        return 0, None
    last, first = (opened[0] + int(word) - 1 for word in words[1:3])
    return (last, Section(first, bytes.fromhex(words[3]), now_ms)) if last <= end else (0, None)
