"""What the command lines of the programs have in common; secrets only in files that other users cannot read."""

import argparse
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from contract import files
from contract.files import PropertiesError, read_properties
from contract.receipt import GROUP_DEFAULT
from contract.topics import EVENTS

SECRETS_FOLDER = Path("/etc/oncegate/cloud-secrets")
"""The folder of the secrets, for systemd and for commands outside the units."""
_SECRET = re.compile(r"password|secret|jaas|keystore\.key|key\.pem|oauthbearer\.config")
"""Marks secrets among the names of the Java client's properties and of librdkafka's."""
_Settings = TypeVar("_Settings")


def new_parser(
    name: str, description: str | None, examples: str | None = None, usage: str | None = None
) -> argparse.ArgumentParser:
    """Return the parser of a program, without options."""
    return argparse.ArgumentParser(
        prog=f"oncegate-cloud {name}",
        usage=usage,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_topic(parser: argparse.ArgumentParser, *, has_group: bool = True) -> None:
    """Add the options that say where the topic is, and which group has the receipts."""
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    add("--topic", default=EVENTS, help="default: %(default)s")
    if has_group:
        help_ = "group whose committed offsets are the receipts; default: %(default)s"
        add("--group", default=GROUP_DEFAULT, help=help_)


def read(kind: type[_Settings], given: argparse.Namespace, **others: Any) -> _Settings:
    """Return settings whose fields have the values of the options with these names, but for `others`."""
    names = {field.name for field in fields(kind)} - others.keys()  # type: ignore[arg-type]  # a dataclass
    return kind(**{name: getattr(given, name) for name in names}, **others)


def add_properties(parser: argparse.ArgumentParser, *, is_java: bool) -> None:
    """Add the options for the properties of Spark's Java client, or of librdkafka."""
    client, secret = ("Kafka's Java client", "sasl.jaas.config") if is_java else ("librdkafka", "sasl.password")
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
        help=f"file with one NAME=VALUE per line, which only its owner may read; for secrets such as {secret}; "
        f"{files.CREDENTIAL}NAME is NAME in {SECRETS_FOLDER}, which systemd passes to the units",
    )


def add_gateways(
    parser: argparse.ArgumentParser,
    effect: str = "records without the MAC of such a key go to quarantine; read again when it changes",
) -> None:
    """Add the option for the keys of the gateways; `effect` is what they decide."""
    parser.add_argument(
        "--gateways",
        type=secret_path,
        metavar="FILE",
        help="CSV of gateways and keys, as `oncegate credentials --gateway` prints them, which only its owner may "
        f"read; {effect}",
    )


def properties(given: argparse.Namespace) -> dict[str, str]:
    """Return the properties of both options; an argument overrides the file."""
    return {**given.kafka_properties, **dict(given.kafka)}


def open_property(
    text: str, secret: re.Pattern[str] = _SECRET, file_option: str = "--kafka-properties"
) -> tuple[str, str]:
    """Read NAME=VALUE from an argument; refuse a secret, since all users of the machine can see arguments."""
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if secret.search(name):
        raise argparse.ArgumentTypeError(f"{name} is a secret: it belongs in the file of {file_option}")
    return name.strip(), value.strip()


def number(text: str, most: int) -> int:
    """Read a number from 1 on."""
    if not text.isdecimal() or not 0 < int(text) <= most:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to {most}; found {text!r}")
    return int(text)


def secret_path(text: str) -> Path:
    """Return the path of a file with a secret; `credential:NAME` is one that systemd passes."""
    try:
        return files.secret_path(text, SECRETS_FOLDER)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def read_file(path: str) -> dict[str, str]:
    """Read NAME=VALUE lines from a file; empty lines and those that begin with # are ignored."""
    try:
        return read_properties(secret_path(path))
    except PropertiesError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
