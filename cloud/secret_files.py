"""Whether a file with a secret is its owner's alone."""

from __future__ import annotations

import os
from pathlib import Path

_GROUP, _OTHERS = 0o070, 0o007
_CREDENTIALS = "CREDENTIALS_DIRECTORY"


def is_open_to_others(file: Path, mode: int) -> bool:
    """Whether somebody else may read a file of this mode.

    systemd lets a unit's user read its credentials by an access list, which the mode shows as a right of the group.
    """
    folder = os.environ.get(_CREDENTIALS)
    is_credential = folder is not None and file.absolute().parent == Path(folder)
    return bool(mode & (_OTHERS if is_credential else _GROUP | _OTHERS))
