"""Properties of Kafka's client on the command line: secrets only in a file that nobody else can read."""

from __future__ import annotations

import argparse
import re
import stat
from pathlib import Path

from cloud.secret_files import is_open_to_others

FILE_BYTES_MAX = 64 << 10
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
    name, value = _name_and_value(text)
    if _SECRET.search(name):
        raise argparse.ArgumentTypeError(f"{name} is a secret: it belongs into the file of --kafka-properties")
    return name, value


def read_file(path: str) -> dict[str, str]:
    """Read NAME=VALUE lines; empty ones and those that begin with # are left out."""
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_BYTES_MAX:
            raise argparse.ArgumentTypeError(f"{path} is no regular file of at most {FILE_BYTES_MAX} bytes")
        if is_open_to_others(Path(path), status.st_mode):
            raise argparse.ArgumentTypeError(f"others may read {path}; run: chmod 600 {path}")
        lines = Path(path).read_text().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from error
    told = {number: line.strip() for number, line in enumerate(lines, 1)}
    return dict(_line(path, number, line) for number, line in told.items() if line and not line.startswith("#"))


def _line(path: str, number: int, line: str) -> tuple[str, str]:
    try:
        return _name_and_value(line)
    except argparse.ArgumentTypeError:  # whose text is the line
        raise argparse.ArgumentTypeError(f"{path}: line {number} is not NAME=VALUE") from None


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value.strip()
