"""The command line of the gateway: `oncegate run`, and the commands that inspect its configuration and its store."""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from agent import release
from agent.cli import config, credentials, doctor_command, events, fingerprint, replay, trace, verify
from agent.cli import status as status_command
from agent.coap.errors import CredentialsError
from agent.config import load
from agent.config.load import ConfigurationError
from agent.config.settings import Settings
from agent.forward.errors import KafkaSettingsError
from agent.http.errors import HttpBindError, HttpSettingsError
from agent.store.errors import DamagedEventError, StoreError, is_damage
from agent.terminal import Colour, paint, printable

FAILURE = 1
USAGE = 2

_EXAMPLES = """examples:
  oncegate check                       is the configuration right?
  oncegate doctor                      is everything around the gateway right?
  oncegate status                      what does the store hold?
  oncegate events --limit 10           the latest events
  oncegate trace 5f1c0d6b6a0f4f1d9c5b7a3e2d1c0b9a
  oncegate COMMAND --help              options and examples of a command

exit codes: 0 fine, 1 a failure, 2 wrong usage or configuration
"""
_RUN_EXAMPLES = """examples:
  oncegate run
  oncegate run --config ./oncegate.toml --log-level debug
  ONCEGATE_COAP__BIND='[::]:15683' oncegate run
"""
_CHECK_EXAMPLES = """examples:
  oncegate check
  oncegate check --config ./oncegate.toml && sudo systemctl restart oncegate
"""


def main() -> None:
    """Run the command and exit: 0 success, 1 a failure, 2 wrong usage or configuration."""
    arguments = _parser().parse_args()
    try:
        sys.exit(arguments.run(arguments))
    except (ConfigurationError, HttpSettingsError, KafkaSettingsError, CredentialsError) as error:
        _complain(str(error))
        sys.exit(USAGE)
    except (StoreError, DamagedEventError, sqlite3.Error) as error:
        hint = "; the store is damaged: see oncegate verify" if is_damage(error, opening=True) else ""
        _complain(f"{error}{hint}")
        sys.exit(FAILURE)
    except PermissionError as error:
        _complain(f"{error.filename}: {error.strerror}; run it as root, or as the user that the agent runs as")
        sys.exit(FAILURE)
    except KeyboardInterrupt:
        sys.exit(FAILURE)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILURE)


def _complain(text: str) -> None:
    print(f"{paint('oncegate:', Colour.BAD, sys.stderr)} {printable(text)}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oncegate",
        description="Take events from sensors, each exactly once, and keep them until the cloud has them in its table.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    run = _add(commands, "run", _run, "run the agent until SIGTERM", _RUN_EXAMPLES)
    run.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    _add(commands, "check", _check, "check the configuration: file, line, key", _CHECK_EXAMPLES)
    _add_module(commands, "config", config, "print the effective configuration, with the origin of each value")
    _add_module(commands, "doctor", doctor_command, "check clock, disk, Kafka, MQTT; exit 1: something is wrong")
    _add_module(commands, "status", status_command, "show what the store holds")
    _add_module(commands, "events", events, "show the latest events, a JSON object a line")
    _add_module(commands, "trace", trace, "show the trace of an event, by its fingerprint")
    _add_module(commands, "replay", replay, "send the kept events of an epoch again")
    _add_module(commands, "verify", verify, "check all of the store; exit 1: it is damaged")
    _add_module(
        commands,
        "fingerprint",
        fingerprint,
        "compute the fingerprints of events, for firmware writers",
        configured=False,
    )
    _add_module(commands, "credentials", credentials, "create the OSCORE credentials of a sensor, for both sides")
    _add(commands, "version", _version, "print version and form", "example:\n  oncegate version\n", configured=False)
    return parser


Commands = argparse._SubParsersAction  # the result of add_subparsers has no public name


def _add_module(
    commands: Commands[argparse.ArgumentParser], name: str, module: ModuleType, help_: str, *, configured: bool = True
) -> None:
    """Add the command of a module with EXAMPLES, add_arguments and run."""
    module.add_arguments(_add(commands, name, module.run, help_, module.EXAMPLES, configured=configured))


def _add(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    help_: str,
    examples: str,
    *,
    configured: bool = True,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=help_,
        description=help_[0].upper() + help_[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if configured:
        parser.add_argument(
            "--config",
            type=Path,
            default=Path(os.environ.get(load.PATH_VARIABLE, load.DEFAULT_PATH)),
            metavar="FILE",
            help="configuration file (default: $ONCEGATE_CONFIG, else /etc/oncegate/oncegate.toml)",
        )
    parser.set_defaults(run=run)
    return parser


def _settings(arguments: argparse.Namespace) -> Settings:
    return load.load(arguments.config)


def _run(arguments: argparse.Namespace) -> int:
    # The Kafka client is slow to load: imported only here.
    from agent.coap.errors import CoapBindError
    from agent.service import serve
    from agent.systemd import journal

    settings = _settings(arguments)
    journal.configure(arguments.log_level.upper())
    status = 0
    try:
        asyncio.run(serve(settings))
    except* (KafkaSettingsError, HttpSettingsError, CredentialsError) as group:
        status = _explain(group, USAGE)
    except* (StoreError, CoapBindError, HttpBindError) as group:
        status = _explain(group, FAILURE)
    return status


def _explain(group: BaseExceptionGroup[Exception], status: int) -> int:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            _explain(error, status)
        else:
            _complain(str(error))
    return status


def _check(arguments: argparse.Namespace) -> int:
    from agent.coap.oscore.credentials import read_credentials
    from agent.coap.oscore.serving import check_installed
    from agent.forward.forwarder import mode_of
    from agent.forward.kafka.client import LastError, open_admin, producer_config
    from agent.http.auth.access import open_access
    from agent.http.auth.tls import open_tls

    settings = _settings(arguments)
    if settings.http.enabled:
        open_access(settings.http)
        open_tls(settings.http)
    if settings.coap.enabled and settings.coap_oscore.credentials_dir is not None:
        check_installed()
        for error in read_credentials(settings.coap_oscore.credentials_dir).errors:
            raise CredentialsError(error)
    producer_config(settings.kafka, mode_of(settings.kafka, settings.gateway.id).fixed)
    open_admin(settings.kafka, LastError())  # checks the properties and their values
    print(f"{arguments.config}: fine")
    return 0


def _version(arguments: argparse.Namespace) -> int:
    print(f"oncegate {release.version()} {release.form()}")
    return 0


if __name__ == "__main__":
    main()
