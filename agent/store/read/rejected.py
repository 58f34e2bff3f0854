"""The kept rejected events, selected, as JSON documents."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

from agent.store.layout import FILE_NAME
from agent.store.port import Reject
from agent.store.schema import database, tables

NumberedReject = tuple[int, Reject]


@dataclass(frozen=True, slots=True)
class RejectSelection:
    """Which rejected events are selected; an empty value or None selects all."""

    via: str = ""
    device: str = "*"
    """A glob pattern."""
    reason: str = ""
    """A part of the reason, in any case."""
    number: int | None = None
    before: int | None = None
    """Only those with a lower number."""

    def select(self, rejects: Iterable[NumberedReject]) -> list[NumberedReject]:
        """Return the selected ones, in order."""
        pattern = translate(unicodedata.normalize("NFC", self.device))
        is_of_device = re.compile(pattern).match  # fnmatchcase would keep 32,768 patterns in its cache
        reason = self.reason.lower()
        return [
            (number, reject)
            for number, reject in rejects
            if (not self.via or reject.via == self.via)
            and is_of_device(unicodedata.normalize("NFC", reject.device))  # a topic may not be in it
            and reason in reject.reason.lower()
            and self.number in (None, number)
            and (self.before is None or number < self.before)
        ]


def read_rejected(folder: Path, selection: RejectSelection, limit: int) -> list[dict[str, object]]:
    """Return the latest selected ones, newest first; `raw` holds the first bytes of each as hex digits."""
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        rejects = tables.load_rejects(connection)
    wanted = selection.select(rejects)
    return [
        {
            "number": number,
            "received": reject.received,
            "device": reject.device,
            "via": reject.via,
            "reason": reject.reason,
            "raw": reject.raw.hex(),
        }
        for number, reject in reversed(wanted[-limit:])
    ]
