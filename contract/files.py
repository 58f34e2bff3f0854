"""Read files that people provide: settings, secrets, certificates, the properties of a Kafka client.

Reading neither blocks (on a FIFO without a writer, on a terminal) nor takes unbounded memory (from a device, from a
file of gigabytes).
"""

import errno
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

BYTES_MAX = 1 << 20
"""Far above the size of any configuration, and below the free memory of any gateway."""
SECRET_BYTES_MAX = 64 << 10
"""Above the size of a file with certificates and a key."""

CREDENTIAL = "credential:"
"""Prefix of the name of a secret that systemd passes to the service (LoadCredential=secret:FOLDER)."""
_GROUP, _OTHERS = 0o070, 0o007
_CREDENTIALS = "CREDENTIALS_DIRECTORY"
_FILE_PREFIX = "secret_"
"""Systemd's prefix of file names when it loads a whole folder."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,127}")


class PrivateFileError(Exception):
    """A private file cannot be used; the message is the reason, without the file's name or content."""


class PropertiesError(Exception):
    """The file cannot be read, or is not a properties file; the message never holds a value."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file's bytes, and its mode when it was read."""

    data: bytes
    mode: int


def read(path: Path, bytes_max: int = BYTES_MAX) -> Content:
    """Read a regular file, following links; raise OSError for any other kind of file and for a larger one."""
    # O_NONBLOCK: open() on a FIFO waits for a writer. O_NOCTTY: a terminal must not become the controlling one.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"larger than {bytes_max} bytes", str(path))
    return Content(data, mode)


def read_private(path: Path, bytes_max: int = SECRET_BYTES_MAX) -> str:
    """Return the text of a file that only its owner can read or write; raise PrivateFileError for any other file."""
    try:
        content = read(path, bytes_max)
        text = content.data.decode()
    except OSError as error:
        raise PrivateFileError(error.strerror) from error
    except UnicodeDecodeError:
        raise PrivateFileError("not UTF-8 text") from None
    if _is_open_to_others(path, content.mode):
        raise PrivateFileError(f"others may read it (mode {content.mode & 0o777:o}); run: chmod 600 {path}")
    return text


def _is_open_to_others(path: Path, mode: int) -> bool:
    """Whether other users may read or write a file of this mode.

    systemd grants a unit's user access to its credentials by an access list, which the mode shows as group rights.
    """
    folder = os.environ.get(_CREDENTIALS)
    is_credential = folder is not None and path.absolute().parent == Path(folder)
    return bool(mode & (_OTHERS if is_credential else _GROUP | _OTHERS))


def parse_properties(lines: Iterable[str], source: Path) -> dict[str, str]:
    """Return the properties of lines NAME=VALUE, as Kafka's own tools write them.

    Empty lines and those that begin with # are ignored.
    """
    properties: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise PropertiesError(f"{source}:{number}: expected name=value")  # never the line, which may be a secret
        properties[name.strip()] = value.strip()
    return properties


def read_properties(file: Path) -> dict[str, str]:
    """Return the properties of a file that only its owner can read or write; raise PropertiesError for any other."""
    try:
        text = read_private(file)
    except PrivateFileError as error:
        raise PropertiesError(f"{file}: {error}") from error
    return parse_properties(text.split("\n"), file)


def secret_path(text: str, folder: Path) -> Path:
    """Return the path of a secret: `text`, or the file that it names with CREDENTIAL; ValueError for a wrong name.

    Outside the service, where systemd passes nothing, that is the file in `folder`, which systemd would load.
    """
    if not text.startswith(CREDENTIAL):
        return Path(text)
    name = text.removeprefix(CREDENTIAL)
    if not _NAME.fullmatch(name) or set(name) == {"."}:
        raise ValueError(f"expected {CREDENTIAL}NAME with letters, digits, dots, hyphens and underscores, 127 at most")
    handed_over = os.environ.get(_CREDENTIALS)
    return folder / name if handed_over is None else Path(handed_over) / f"{_FILE_PREFIX}{name}"
