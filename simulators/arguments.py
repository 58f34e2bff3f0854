"""Command-line options that the commands share: the parser's layout, the seed, the ledger of an earlier run."""

import argparse
import sys
from collections.abc import Collection
from pathlib import Path
from random import SystemRandom
from urllib.parse import urlsplit

LEDGER_FILE = "ledger.jsonl"
USAGE = 2
SEED_END = 1 << 32
PORTS = {"coap": 5683, "http": 8580, "mqtt": 1883}
"""Of each scheme, where a URL names none."""


def make_parser(program: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Return a parser without arguments."""
    return argparse.ArgumentParser(
        prog=program,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add --seed."""
    chance = SystemRandom().randrange(SEED_END)
    text = "seed of all randomness (default: a random one, printed)"
    parser.add_argument("--seed", type=natural, default=chance, metavar="N", help=text)


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names an earlier run."""
    parser.add_argument("source", type=Path, metavar="LEDGER|FOLDER", help="a ledger, or the folder of a run")


def ledger_of(given: argparse.Namespace, program: str) -> Path | None:
    """Return the ledger of the given run; print an error and return None where it does not exist."""
    file: Path = given.source / LEDGER_FILE if given.source.is_dir() else given.source
    if file.exists():
        return file
    print(f"{program}: {file} does not exist", file=sys.stderr)
    return None


def natural(text: str) -> int:
    """Parse a natural number."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no natural number")
    return int(text)


def positive(text: str) -> int:
    """Parse a positive integer."""
    if (number := natural(text)) == 0:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return number


def seconds(text: str) -> float:
    """Parse a number that is not negative."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return number


def target(text: str, schemes: Collection[str] = PORTS) -> tuple[str, tuple[str, int]]:
    """Parse the URL of a gateway, or of its MQTT broker: scheme and address."""
    url = urlsplit(text)
    if url.scheme not in schemes or not url.hostname or url.path not in ("", "/"):
        raise argparse.ArgumentTypeError(f"{text!r} is no {'://HOST[:PORT], '.join(schemes)}://HOST[:PORT]")
    return url.scheme, (url.hostname, url.port or PORTS[url.scheme])
