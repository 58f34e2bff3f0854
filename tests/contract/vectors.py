"""The test vectors of the fingerprint, which are never edited."""

import json
from dataclasses import dataclass
from pathlib import Path

from contract.event import Event, Label, Value


@dataclass(frozen=True)
class Vector:
    note: str
    entries: dict[str, Value]
    """The event's map, as a sensor would send it."""
    fields: tuple[str, ...]
    cbor: str
    fingerprint: str

    def __str__(self) -> str:
        return self.note

    @property
    def event(self) -> Event:
        fields = {name: value for name, value in self.entries.items() if name not in ("epoch", "sequence")}
        return Event(**fields)  # type: ignore[arg-type]  # the names are an event's

    @property
    def label(self) -> Label | None:
        if "epoch" not in self.entries:
            return None
        return Label(str(self.entries["epoch"]), int(str(self.entries["sequence"])))


def _bytes(entries: dict[str, Value]) -> Value:
    return bytes.fromhex(str(entries["bytes_hex"])) if entries.keys() == {"bytes_hex"} else entries


def _load() -> list[Vector]:
    text = Path(__file__).with_name("fingerprint-vectors.json").read_text()
    vectors = json.loads(text, object_hook=_bytes)["vectors"]
    return [Vector(v["note"], v["event"], tuple(v["fields"]), v["cbor"], v["fingerprint"]) for v in vectors]


VECTORS = _load()
