"""The command line of the gateway: `oncegate run`, and the commands that look at its configuration and its store."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sqlite3
import sys
from importlib.metadata import version
from pathlib import Path

from agent import configuration, fingerprint_command, trace_command, verify_command
from agent.configuration import ConfigurationError
from agent.http.errors import BindError as HttpBindError
from agent.http.errors import HttpSettingsError
from agent.settings import Settings
from agent.status import EventCounts, read_status
from agent.store.damage import DamagedEventError, is_damage
from agent.store.database import StoreError

FAILURE = 1
USAGE = 2

_EXAMPLES = """examples:
  oncegate check --config /etc/oncegate/oncegate.toml
  oncegate run
  oncegate status --json
  oncegate events --limit 10
  oncegate trace 5f1c0d6b6a0f4f1d9c5b7a3e2d1c0b9a
  oncegate verify --json
  echo '{"device":"urn:dev:mac:00158d0001a2b3c4","id":17,"data":{"temperature":21.5}}' | oncegate fingerprint -
"""


def main() -> None:
    """Run the command and exit: 0 fine, 1 a failure, 2 wrong usage or configuration."""
    arguments = _parser().parse_args()
    try:
        sys.exit(arguments.run(arguments))
    except (ConfigurationError, HttpSettingsError) as error:
        print(f"oncegate: {error}", file=sys.stderr)
        sys.exit(USAGE)
    except (StoreError, DamagedEventError, sqlite3.Error) as error:
        hint = "; the store is damaged: see oncegate verify" if is_damage(error, opening=True) else ""
        print(f"oncegate: {error}{hint}", file=sys.stderr)
        sys.exit(FAILURE)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILURE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oncegate",
        description="Take events from sensors, each exactly once, and keep them until the cloud has them in its table.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    configured = argparse.ArgumentParser(add_help=False)
    configured.add_argument(
        "--config",
        type=Path,
        default=Path(os.environ.get(configuration.PATH_VARIABLE, configuration.DEFAULT_PATH)),
        metavar="FILE",
        help="configuration file (default: $ONCEGATE_CONFIG, else /etc/oncegate/oncegate.toml)",
    )
    run = commands.add_parser("run", parents=[configured], help="run the agent until SIGTERM")
    run.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    run.set_defaults(run=_run)
    commands.add_parser("check", parents=[configured], help="check the configuration").set_defaults(run=_check)
    status = commands.add_parser("status", parents=[configured], help="show what the store holds")
    status.add_argument("--json", action="store_true", help="one JSON object")
    status.set_defaults(run=_status)
    events = commands.add_parser("events", parents=[configured], help="show the latest events, a JSON object a line")
    events.add_argument("--json", action="store_true", help="the same; for scripts that say so")
    events.add_argument("--limit", type=int, default=20, metavar="N", help="how many at most (default: 20)")
    events.add_argument("--duplicates", action="store_true", help="show the latest copies, and what each repeats")
    events.set_defaults(run=_events)
    trace = commands.add_parser("trace", parents=[configured], help="show one event's way, by its fingerprint")
    trace_command.add_arguments(trace)
    trace.set_defaults(run=_trace)
    verify = commands.add_parser("verify", parents=[configured], help="check all of the store; exit 1: it is damaged")
    verify_command.add_arguments(verify)
    verify.set_defaults(run=_verify)
    fingerprint = commands.add_parser("fingerprint", help="compute the fingerprints of events, for firmware writers")
    fingerprint_command.add_arguments(fingerprint)
    fingerprint.set_defaults(run=fingerprint_command.run)
    commands.add_parser("version", help="print the version").set_defaults(run=_version)
    return parser


def _settings(arguments: argparse.Namespace) -> Settings:
    return configuration.load(arguments.config)


def _run(arguments: argparse.Namespace) -> int:
    # The Kafka client takes its time to load: only here.
    from agent.coap.errors import BindError
    from agent.forward.error import KafkaSettingsError
    from agent.service import serve

    settings = _settings(arguments)
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    status = 0
    try:
        asyncio.run(serve(settings))
    except* (KafkaSettingsError, HttpSettingsError) as group:
        status = _explain(group, USAGE)
    except* (StoreError, BindError, HttpBindError) as group:
        status = _explain(group, FAILURE)
    return status


def _explain(group: BaseExceptionGroup[Exception], status: int) -> int:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            _explain(error, status)
        else:
            print(f"oncegate: {error}", file=sys.stderr)
    return status


def _check(arguments: argparse.Namespace) -> int:
    from agent.http.access import open_access
    from agent.http.tls import open_tls

    settings = _settings(arguments)
    if settings.http.enabled:
        open_access(settings.http)
        open_tls(settings.http)
    print(f"{arguments.config}: fine")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    status = read_status(settings.gateway.state_dir, settings.gateway.id)
    if arguments.json:
        print(json.dumps(status.document()))
        return 0
    rows = {
        "gateway": status.gateway,
        "accepted": f"{status.accepted} events, {status.duplicates} copies recognised, {status.rejected} rejected",
        "in the store": _states(status.events),
        "label": f"epoch {status.epoch}, sequence {status.sequence}, {status.epochs} epochs so far",
        "on disk": f"{status.store_bytes / 1e6:.1f} MB",
    }
    if status.maybe_lost:
        rows["maybe lost"] = f"{status.maybe_lost} events, in flight when the connection or the agent ended"
    if status.forwarding_stopped:
        rows["forwarding"] = f"stopped: {status.forwarding_stopped}"
    for name, value in rows.items():
        print(f"{name:>14}  {value}")
    return 0


def _states(events: EventCounts) -> str:
    lost = f", {events.lost} lost" if events.lost else ""
    return f"{events.new} new, {events.forwarded} forwarded, {events.processed} processed{lost}"


def _events(arguments: argparse.Namespace) -> int:
    from agent.events_command import read_duplicates, read_events

    gateway = _settings(arguments).gateway
    if arguments.duplicates:
        rows = read_duplicates(gateway.state_dir, arguments.limit)
    else:
        rows = read_events(gateway.state_dir, gateway.id, arguments.limit)
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))
    return 0


def _trace(arguments: argparse.Namespace) -> int:
    gateway = _settings(arguments).gateway
    return trace_command.run(gateway.state_dir, gateway.id, arguments)


def _verify(arguments: argparse.Namespace) -> int:
    return verify_command.run(_settings(arguments).gateway.state_dir, arguments)


def _version(arguments: argparse.Namespace) -> int:
    print(f"oncegate {version('oncegate')}")
    return 0


if __name__ == "__main__":
    main()
