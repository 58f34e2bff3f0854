"""The keys of gateways, by which their records are authenticated (`contract.mac`): a private CSV file of the driver.

Several lines may name one gateway, so that its key can be replaced without a record in between that no key fits.
"""

import csv
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from hmac import compare_digest
from pathlib import Path

from cloud.errors import StopError
from cloud.renewed import Renewed, stamp
from contract.files import PrivateFileError, read_private
from contract.mac import Signer, read_key
from contract.record import MAC_WORD

KEYS_MAX = 2
"""Of one gateway: the present one and the next one."""

_BYTES_MAX = 16 << 20
"""Two lines for each of 100,000 gateways."""

Keys = Mapping[str, tuple[bytes, ...]]
Signers = Mapping[bytes, tuple[Signer, ...]]
"""By the name of the gateway."""

logger = logging.getLogger(__name__)


class GatewayFile:
    """The keys by gateway, and what they make of records of a topic."""

    def __init__(self, path: Path, topic: str) -> None:
        """Read the file; raise StopError where it cannot be read."""
        self._file = Renewed("gateways", "keys", partial(stamp, path, "gateways"), partial(_read, path))
        self._topic = topic
        self.keys: Keys = {}
        self.signers: Signers = {}
        self.renewed()

    def renewed(self) -> bool:
        """Take the file's present keys into `keys` and `signers`; return whether they have changed."""
        before, self.keys = self.keys, self._file.present()
        if is_new := self.keys != before:
            made = {name: tuple(Signer(key, self._topic) for key in each) for name, each in self.keys.items()}
            self.signers = {name.encode(): signers for name, signers in made.items()}
        return is_new


def fits(signers: Signers, fingerprint: bytes | None, words: Sequence[bytes], value: bytes | None) -> bool:
    """Whether a record's eighth word is a MAC by a key of the gateway in its first word."""
    if len(words) <= MAC_WORD or fingerprint is None or value is None:
        return False
    said = b" ".join(words[:MAC_WORD])
    return any(compare_digest(sign(fingerprint, said, value), words[MAC_WORD]) for sign in signers.get(words[0], ()))


def _read(path: Path) -> Keys:
    try:
        lines = read_private(path, _BYTES_MAX).removeprefix("\ufeff").splitlines()
    except PrivateFileError as error:
        raise StopError(f"gateways {path}: {error}") from error
    keys: dict[str, tuple[bytes, ...]] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = next(csv.reader([line]), [])
            if not row or row[0].startswith("#") or row == ["gateway", "key"]:
                continue
            name, key = map(str.strip, row)
            found = read_key(key)
        except (ValueError, csv.Error):  # whose text may have the key
            raise StopError(f"gateways {path}, line {number}: expected a gateway, a comma and a key") from None
        keys[name] = (*keys.get(name, ()), found)
        if len(keys[name]) > KEYS_MAX:
            raise StopError(f"gateways {path}, line {number}: {name} has more than {KEYS_MAX} keys; remove the oldest")
    if not keys:
        raise StopError(f"gateways {path}: names no gateway, so every record would go to quarantine")
    logger.info("gateways=%d file=%s", len(keys), path)
    return keys
