"""`oncegate check`: check the configuration."""

from __future__ import annotations

import argparse

from agent.config import load

EXAMPLES = """examples:
  oncegate check
  oncegate check --config ./oncegate.toml && sudo systemctl restart oncegate
"""


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Declare no options."""


def run(arguments: argparse.Namespace) -> int:
    """Print that the configuration is right, or raise the error of what is wrong."""
    from agent.coap.errors import CredentialsError
    from agent.coap.oscore.credentials import read_credentials
    from agent.coap.oscore.serving import check_installed
    from agent.forward.forwarder import mode_of
    from agent.forward.kafka.client import LastError, open_admin, producer_config
    from agent.http.auth.access import open_access
    from agent.http.auth.tls import open_tls

    settings = load.load(arguments.config)
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
