"""Secrets that systemd passes to a service (LoadCredential=secret:FOLDER), named `credential:NAME`."""

from __future__ import annotations

import os
import re
from pathlib import Path

PREFIX = "credential:"
"""Prefix of the name of a secret that systemd passes to the service."""
_VARIABLE = "CREDENTIALS_DIRECTORY"
_FILE_PREFIX = "secret_"
"""Systemd's prefix of file names when it loads a whole folder."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,127}")


def path(text: str, folder: Path) -> Path:
    """Return the path of a secret: `text`, or the file that it names with PREFIX; ValueError for a wrong name.

    Outside the service, where systemd passes nothing, that is the file in `folder`, which systemd would load.
    """
    if not text.startswith(PREFIX):
        return Path(text)
    name = text.removeprefix(PREFIX)
    if not _NAME.fullmatch(name) or set(name) == {"."}:
        raise ValueError(f"expected {PREFIX}NAME with letters, digits, dots, hyphens and underscores, 127 at most")
    handed_over = os.environ.get(_VARIABLE)
    return folder / name if handed_over is None else Path(handed_over) / f"{_FILE_PREFIX}{name}"
