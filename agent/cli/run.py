"""`oncegate run`: run the agent until SIGTERM."""

import argparse
import asyncio
import os

from agent.cli.failures import FAILURE, USAGE, print_error
from agent.config import load

UMASK = 0o027
"""As in the unit, also where nobody sets it, as in a container: what the agent writes is not for others."""
EXAMPLES = """examples:
  oncegate run
  oncegate run --config ./oncegate.toml --log-level debug
  ONCEGATE_COAP__BIND='[::]:15683' oncegate run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="the least severe messages that are logged (default: info)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the agent; return the exit code."""
    # The Kafka client is slow to load: imported only here.
    from agent.coap.errors import CredentialsError
    from agent.forward.errors import KafkaSettingsError
    from agent.http.address import HttpSettingsError
    from agent.listening import BindError
    from agent.service import serve
    from agent.store.errors import StoreError
    from agent.systemd import journal
    from agent.systemd.sockets import PassedSocketError

    os.umask(UMASK)
    settings = load.load(arguments.config)
    journal.configure(arguments.log_level.upper())
    status = 0
    try:
        asyncio.run(serve(settings))
    except* (KafkaSettingsError, HttpSettingsError, CredentialsError, PassedSocketError) as group:
        status = _explain(group, USAGE)
    except* (StoreError, BindError) as group:
        status = _explain(group, FAILURE)
    return status


def _explain(group: BaseExceptionGroup[Exception], status: int) -> int:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            _explain(error, status)
        else:
            print_error(str(error))
    return status
