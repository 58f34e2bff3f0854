"""Builds the body of an event from the arguments of a command line."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

from agent.cli.arguments import timestamp

NOW = "now"


def read_value(text: str) -> tuple[str, object]:
    """Read NAME=VALUE: VALUE is JSON where it can be read as such, else text."""
    name, equals, written = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUE, such as temperature=21.5")
    try:
        value = json.loads(written, parse_constant=lambda _: written)
    except (ValueError, RecursionError):
        value = written
    return name, value


def read_unit(text: str) -> tuple[str, str]:
    """Read NAME=UNIT."""
    name, equals, unit = text.partition("=")
    if not equals or not name or not unit:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=UNIT, such as temperature=Cel")
    return name, unit


def read_number_or_text(text: str) -> int | str:
    """Read decimal digits without a leading zero as an integer, as the query of a CoAP request is read."""
    decimal = text.isascii() and text.isdecimal() and (text[0] != "0" or text == "0")
    return int(text) if decimal else text


def read_time(text: str) -> int:
    """Read `now`, or a timestamp; return milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000 if text == NOW else timestamp(text)


def event_of(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the event as a map of its fields; raise ValueError where a name occurs twice."""
    event: dict[str, object] = {"device": arguments.device}
    for name in ("type", "id", "boot", "time"):
        if (value := getattr(arguments, name)) is not None:
            event[name] = value
    event["data"] = _unique(arguments.values)
    if arguments.unit:
        event["units"] = _unique(arguments.unit)
    return event


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"{name!r} occurs twice")
        values[name] = value
    return values
