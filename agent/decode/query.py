"""The words beside a body: what a CoAP sensor with no room in its payload says in the Uri-Query."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.decode.error import Undecodable

WORD_CHARACTERS_MAX = 256


@dataclass(frozen=True, slots=True)
class Words:
    """What the query says of a body's events; None where it is silent."""

    device: str | None = None
    id: int | str | None = None
    boot: int | str | None = None
    time: int | str | None = None
    type: str | None = None

    @property
    def single(self) -> bool:
        """Whether a word can be true of one event only."""
        return self.id is not None or self.boot is not None or self.time is not None


NO_WORDS = Words()


def read_words(query: Mapping[str, str]) -> Words:
    """Read d, id, boot, t and type; raise Undecodable on any other word: a misspelt one would lose an identity."""
    for name, word in query.items():
        if name not in ("d", "id", "boot", "t", "type"):
            raise Undecodable(f"query: unknown word {name[:WORD_CHARACTERS_MAX]!r}")
        if not 0 < len(word) <= WORD_CHARACTERS_MAX:
            raise Undecodable(f"query: {name} is empty or longer than {WORD_CHARACTERS_MAX} characters")
    return Words(
        device=query.get("d"),
        id=_number_or_text(query.get("id")),
        boot=_number_or_text(query.get("boot")),
        time=_number_or_text(query.get("t")),
        type=query.get("type"),
    )


def _number_or_text(word: str | None) -> int | str | None:
    """Read decimal digits without a leading zero as an integer."""
    if word is None or not (word.isascii() and word.isdecimal()) or (word[0] == "0" and word != "0"):
        return word
    return int(word)
