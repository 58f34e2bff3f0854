"""`oncegate credentials`: create the OSCORE credentials of a sensor, or the key of the gateway's records."""

import argparse
import csv
import json
import os
import sys
from pathlib import Path
from pwd import struct_passwd

from agent.cli.doctor.files import as_user, open_folder, service_user
from agent.cli.failures import UsageError, print_error
from agent.coap.errors import CredentialsError
from agent.coap.oscore.credentials import Credential, create_credential
from agent.config import load
from agent.config.files import write_new
from agent.config.mistakes import ConfigurationError, Mistake
from agent.config.settings import Settings
from contract.mac import create_key

MODE = 0o640
"""Of the gateway's key; its folder's group is that of the service."""

EXAMPLES = """examples:
  (umask 077 && oncegate credentials urn:dev:mac:00158d0001a2b3c4 > sensor.json)
  oncegate credentials --relay urn:example:relay-1
  (umask 077 && oncegate credentials --gateway >> gateways.csv)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "device", metavar="DEVICE", nargs="?", help="the sensor's URN, such as urn:dev:mac:00158d0001a2b3c4"
    )
    parser.add_argument(
        "--gateway",
        action="store_true",
        help="create the file of kafka.mac_key_file, or beside it the next one, and print its line of the job's "
        "--gateways",
    )
    parser.add_argument("--relay", action="store_true", help="allow it to send events of other devices")


def run(arguments: argparse.Namespace) -> int:
    """Write the gateway's file, and print the other side's part; the secret is stored nowhere else."""
    if (arguments.device is None) != arguments.gateway:
        raise UsageError("expected either DEVICE or --gateway")
    settings = load.load(arguments.config)
    if arguments.gateway:
        return _create_key(settings, str(arguments.config))
    folder = settings.coap_oscore.credentials_dir
    if folder is None:
        raise _missing(str(arguments.config), "coap.oscore", "credentials_dir", "set it to the file's folder")
    user = service_user({"gateway": settings.gateway})
    _make_folder(folder, user)
    file, credential = create_credential(folder, arguments.device, relay=arguments.relay)
    print(json.dumps(sensor_side(credential), indent=2))
    print(f"oncegate: wrote {file}; configure the sensor with the output above", file=sys.stderr)
    with as_user(user):
        is_readable = os.access(file, os.R_OK, effective_ids=True)
    if not is_readable:
        print_error(f"the service's user cannot read it: {open_folder(folder, user)}")
    return 0


def _create_key(settings: Settings, configuration: str) -> int:
    """Write the gateway's key, or beside it the next one, and print its line of the job's file of gateways."""
    path = settings.kafka.mac_key_file
    if path is None:
        raise _missing(configuration, "kafka", "mac_key_file", "set it to the file that is to be made")
    is_first = not path.exists()
    file, key = path if is_first else path.with_name(f"{path.name}.next"), create_key()
    try:
        write_new(file, f"{key}\n", MODE)
    except FileExistsError as error:
        raise CredentialsError(f"{file} exists: rename it to {path}, which puts it into use, or remove it") from error
    except OSError as error:
        raise CredentialsError(f"{file} cannot be written: {error.strerror}") from error
    csv.writer(sys.stdout, lineterminator="\n").writerow((settings.gateway.id, key))
    then = "restart the agent" if is_first else f"mv {file} {path}"
    print(f"oncegate: wrote {file}; add the output above to the job's --gateways file; then: {then}", file=sys.stderr)
    return 0


def _missing(configuration: str, section: str, key: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(Mistake(configuration, None, section, key, f"missing; {remedy}"))


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
