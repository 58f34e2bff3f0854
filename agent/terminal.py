"""The output of commands: columns, colours on a terminal, and no control characters."""

import json
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from enum import Enum
from typing import TextIO

_GAP = "  "
_LAST_COLUMN_MIN = 24
"""Below this width the last column is not wrapped: a very narrow terminal wraps by itself."""
_WIDTH_WITHOUT_TERMINAL = 120


class Colour(Enum):
    """Colours by meaning (ECMA-48, select graphic rendition)."""

    GOOD = "32"
    WARNING = "33"
    BAD = "31"
    FAINT = "2"
    STRONG = "1"


def printable(text: str, keep: str = "") -> str:
    """Escape controls, bidi overrides, line separators and invisible characters."""
    if text.isprintable():
        return text
    signs = (sign if _is_seen(sign) or sign in keep else sign.encode("unicode_escape").decode() for sign in text)
    return "".join(signs)


def json_line(document: object) -> str:
    """Return a JSON object in one line, unescaped but for the characters that `printable` escapes."""
    text = json.dumps(document, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(sign if _is_seen(sign) else json.dumps(sign)[1:-1] for sign in text)


def paint(text: str, colour: Colour, stream: TextIO | None = None) -> str:
    """Return a text in a colour, where the stream is a terminal and NO_COLOR is unset (https://no-color.org)."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not (stream or sys.stdout).isatty()
    return text if is_plain else f"\x1b[{colour.value}m{text}\x1b[0m"


def table(
    rows: Sequence[Sequence[str]],
    headings: Sequence[str] = (),
    colours: Sequence[Colour | None] = (),
    widths_min: Sequence[int] = (),
) -> str:
    """Return rows in columns; the last is wrapped to the terminal's width. `colours` are those of the first cells."""
    lines = [tuple(headings), *rows] if headings else list(rows)
    if not lines:
        return ""
    last = len(lines[0]) - 1
    widths = column_widths(lines, widths_min)
    indent = sum(widths) + len(_GAP) * last
    width = shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns - indent if sys.stdout.isatty() else 10**6
    written = []
    for number, line in enumerate(lines):
        row = number - bool(headings)
        colour = Colour.FAINT if row < 0 else (colours[row] if row < len(colours) else None)
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(line[:last], widths, strict=True)]
        if cells and colour is not None:
            cells[0] = paint(cells[0], colour)
        wrapped = textwrap.wrap(line[last], width) if width >= _LAST_COLUMN_MIN else [line[last]]
        text = ("\n" + " " * indent).join(wrapped)
        written.append(_GAP.join([*cells, text]).rstrip())
    return "\n".join(written)


def column_widths(rows: Sequence[Sequence[str]], widths_min: Sequence[int] = ()) -> list[int]:
    """Return the width of each column but the last, given one row at least."""
    columns = range(len(rows[0]) - 1)
    least = widths_min or [0] * len(columns)
    return [max(least[column], *(_width(row[column]) for row in rows)) for column in columns]


def shortened(text: str, columns: int) -> str:
    """Return a text of at most so many columns, which ends with an ellipsis where it was cut."""
    if _width(text) <= columns:
        return text
    while _width(text) >= columns:
        text = text[:-1]
    return text.rstrip() + "…"


def count(number: int, noun: str) -> str:
    """Return a number of things: 1 event, 2 events, 12,000 events."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def size(number: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def duration(seconds: float) -> str:
    """Return a duration for people, in its two largest units."""
    parts: list[str] = []
    remaining = int(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        amount, remaining = divmod(remaining, length)
        if amount or (unit == "s" and not parts):
            parts.append(f"{amount} {unit}")
    return " ".join(parts[:2])


def _is_seen(sign: str) -> bool:
    return sign.isprintable() or unicodedata.category(sign) == "Zs"


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else not unicodedata.combining(sign) for sign in text)
