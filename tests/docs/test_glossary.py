"""Each glossary entry is one sentence, and no term has two meanings."""

import re

from tests.docs.pages import ROOT

ENTRY = re.compile(r"^- \*\*(.+?)\*\*: (.+)$", re.MULTILINE)
WORDS_OF_THE_STYLE = {
    *("device", "gateway", "delivery", "event", "fingerprint", "epoch", "sequence", "outbox", "ack", "forwarded"),
    *("receipt", "quarantine", "watermark"),
}


def entries() -> list[tuple[str, str]]:
    return ENTRY.findall((ROOT / "docs" / "glossary.md").read_text())


def test_words_are_in_order_and_each_is_there_once() -> None:
    words = [word for word, _ in entries()]
    assert words == sorted(set(words), key=lambda word: word.replace("(", " "))
    assert set(words) >= WORDS_OF_THE_STYLE


def test_a_meaning_is_one_sentence() -> None:
    assert [meaning for _, meaning in entries() if meaning.count(". ") or not meaning.endswith(".")] == []
