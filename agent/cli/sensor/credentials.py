"""`oncegate credentials`: create the OSCORE credentials of a sensor."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from pwd import struct_passwd
from typing import TYPE_CHECKING

from agent.cli.doctor.files import as_user, open_folder, service_user
from agent.cli.failures import print_error
from agent.coap.errors import CredentialsError
from agent.config import load
from agent.config.mistakes import ConfigurationError, Mistake

if TYPE_CHECKING:
    from agent.coap.oscore.credentials import Credential

EXAMPLES = """examples:
  (umask 077 && oncegate credentials urn:dev:mac:00158d0001a2b3c4 > sensor.json)
  oncegate credentials --relay urn:example:relay-1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("device", metavar="DEVICE", help="the sensor's URN, such as urn:dev:mac:00158d0001a2b3c4")
    parser.add_argument("--relay", action="store_true", help="allow it to send events of other devices")


def run(arguments: argparse.Namespace) -> int:
    """Write the gateway's file, and print the sensor's side as JSON; the secret is stored nowhere else."""
    from agent.coap.oscore.credentials import create_credential

    settings = load.load(arguments.config)
    folder = settings.coap_oscore.credentials_dir
    if folder is None:
        raise ConfigurationError(
            Mistake(
                str(arguments.config), None, "coap.oscore", "credentials_dir", "missing; set it to the file's folder"
            )
        )
    user = service_user({"gateway": settings.gateway})
    _make_folder(folder, user)
    file, credential = create_credential(folder, arguments.device, relay=arguments.relay)
    print(json.dumps(sensor_side(credential), indent=2))
    print(f"oncegate: wrote {file}; restart the agent, and configure the sensor with the output above", file=sys.stderr)
    with as_user(user):
        is_readable = os.access(file, os.R_OK, effective_ids=True)
    if not is_readable:
        print_error(f"the service's user cannot read it: {open_folder(folder, user)}")
    return 0


def _make_folder(folder: Path, user: struct_passwd | None) -> None:
    """Make the folder where there is none, for root to write and for the service's group to read."""
    try:
        folder.mkdir()
        folder.chmod(0o750)
        if user is not None:
            os.chown(folder, -1, user.pw_gid)
    except FileExistsError:
        return
    except OSError as error:
        raise CredentialsError(f"{folder} cannot be made: {error.strerror}") from error


def sensor_side(credential: Credential) -> dict[str, str]:
    """Return the sensor's side of the context, in the format of aiocoap's settings.json."""
    return {
        "secret_hex": credential.secret.hex(),
        "salt_hex": credential.salt.hex(),
        "sender-id_hex": credential.sensor_id.hex(),
        "recipient-id_hex": credential.gateway_id.hex(),
    }
