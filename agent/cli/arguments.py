"""Reads the words of command lines; each function raises ArgumentTypeError with the expected form."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """Read a whole number, 1 or more."""
    return _number(text, 1)


def not_negative(text: str) -> int:
    """Read a whole number, 0 or more."""
    return _number(text, 0)


def _number(text: str, least: int) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else -1
    if number < least:
        raise argparse.ArgumentTypeError(f"expected a whole number, {least} or more; found {text!r}")
    return number
