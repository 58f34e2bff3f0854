"""Properties of Kafka's client on the command line: secrets only in a file that nobody else can read."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from contract.properties import PropertiesError, read_private

_SECRET = re.compile(r"password|secret|jaas|keystore\.key|key\.pem|oauthbearer\.config")
"""In the names of Java's client and of librdkafka's."""


def add_options(parser: argparse.ArgumentParser, client: str) -> None:
    """Add the options; `client` names whose properties they take."""
    parser.add_argument(
        "--kafka",
        type=open_property,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"property of {client}; repeatable",
    )
    parser.add_argument(
        "--kafka-properties",
        type=read_file,
        default={},
        metavar="FILE",
        help="the same, a line each, in a file that only its owner reads: secrets such as sasl.jaas.config stand there",
    )


def properties(given: argparse.Namespace) -> dict[str, str]:
    """Return what both options say; an argument stands above the file."""
    return {**given.kafka_properties, **dict(given.kafka)}


def open_property(text: str) -> tuple[str, str]:
    """Read NAME=VALUE from an argument, which anybody on the machine may see."""
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if _SECRET.search(name):
        raise argparse.ArgumentTypeError(f"{name} is a secret: it belongs into the file of --kafka-properties")
    return name.strip(), value.strip()


def read_file(path: str) -> dict[str, str]:
    """Read NAME=VALUE lines; empty ones and those that begin with # are left out."""
    try:
        return read_private(Path(path))
    except PropertiesError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
