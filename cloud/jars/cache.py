"""The cache folder of downloads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "ONCEGATE_CACHE"


def folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the cache folder: $ONCEGATE_CACHE, or else ~/.cache/oncegate."""
    chosen = environment.get(VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "oncegate"
