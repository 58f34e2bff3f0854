"""A ledger of thirty events of three devices, 27 of which are acked."""

from __future__ import annotations

from pathlib import Path

from contract.event import Event
from simulators.ledger import Ledger


def write_ledger(folder: Path, refused: int = 0, silent: int = 0) -> Path:
    """Write the ledger into a folder, with more events that were refused or never answered; return the file."""
    moments = iter(range(1_763_706_000_000, 1_763_706_999_000, 100))
    with Ledger(folder / "ledger.jsonl", lambda: next(moments)) as written:
        written.begin({"seed": 7, "scenario": {"name": "<b>", "description": "Much."}, "targets": "here"})
        for number in range(30):
            mark = written.reported(Event(f"urn:dev:mac:{number % 3:016x}", id=number, data={"a": number}))
            written.sent(mark)
            for _ in range(number % 4):
                written.sent(mark, again=True)
            written.acked(mark) if number % 10 else written.given_up(mark)
        for number in range(refused + silent):
            mark = written.reported(Event("urn:dev:mac:ff", id=number, data={"a": number}))
            written.sent(mark)
            if number < refused:
                written.refused(mark, code="4.00")
        written.happened("agent", "killed")
        written.end()
    return folder / "ledger.jsonl"
