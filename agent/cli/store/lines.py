"""Prints a list: as a table on a terminal, otherwise one JSON object a line."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from agent.terminal import Colour, column_widths, json_line, printable, shortened, table

ROWS_AT_ONCE = 200
"""Rows of a table whose columns are aligned with one another; later ones may need wider columns."""
DEVICE_COLUMNS_MAX = 40
"""Of a device's name in a table; JSON lines have all of it."""

Document = Mapping[str, Any]
Row = Callable[[Document], tuple[Sequence[str], Colour | None]]
"""Returns the cells of a row, and the colour of the first one."""


def add_form(parser: argparse.ArgumentParser) -> None:
    """Declare the options that choose the form."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a line (default: in pipes and files)")
    form.add_argument("--table", action="store_true", help="a table (default: on a terminal)")


class Printer:
    """Prints documents in the chosen form."""

    def __init__(self, arguments: argparse.Namespace, headings: Sequence[str], row: Row) -> None:
        self._table = arguments.table or (sys.stdout.isatty() and not arguments.json)
        self._headings = headings
        self._row = row
        self._widths: Sequence[int] = ()

    def print(self, documents: Iterable[Document]) -> int:
        """Print documents as they arrive; return their number."""
        printed = 0
        if not self._table:
            for document in documents:
                print(json_line(document), flush=True)
                printed += 1
            return printed
        rest = iter(documents)
        while rows := [self._row(document) for document in islice(rest, ROWS_AT_ONCE)]:
            cells = [cells for cells, _ in rows]
            printed += len(rows)
            headings = () if self._widths else self._headings
            self._widths = column_widths([*([headings] if headings else []), *cells], self._widths)
            print(table(cells, headings, [colour for _, colour in rows], self._widths), flush=True)
        return printed


def readings_text(data: Document | None, units: Document | None) -> str:
    """Return the measurements of an event in one line; text from outside may be unprintable."""
    shown = {name: one if isinstance(one, str) else json_line(one) for name, one in (data or {}).items()}
    return ", ".join(f"{name} {value} {(units or {}).get(name, '')}".strip() for name, value in shown.items())


def local_time(milliseconds: int) -> str:
    """Return a timestamp in local time; without the date where that is today."""
    local = datetime.fromtimestamp(milliseconds / 1000).astimezone()
    today = local.date() == datetime.now().astimezone().date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def device_cell(device: str) -> str:
    """Return a device's name for a table."""
    return shortened(printable(device), DEVICE_COLUMNS_MAX)
