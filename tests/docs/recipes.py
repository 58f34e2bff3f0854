"""The recipes of docs/kafka-logins.md, with a test's broker, files and secrets in place of the page's."""

import re
import shlex
from pathlib import Path

from agent.config import load
from agent.config.settings import KafkaSettings
from tests.docs.pages import ROOT
from tests.docs.rights import GATEWAY
from tests.support.logins.secured_broker import CLOUD, PASSWORDS, SecuredBroker

PAGE = (ROOT / "docs" / "kafka-logins.md").read_text()
LOGINS = ("SASL/SCRAM", "Client certificates", "OAUTHBEARER with OIDC", "SASL/PLAIN")
_SECRET_FILE = "secret_kafka"


def install_agent(login: str, secured: SecuredBroker, folder: Path) -> KafkaSettings:
    """Write the agent's files of a recipe, its secrets into the folder `credentials`; return the settings in them."""
    configuration, credentials = folder / "oncegate.toml", folder / "credentials"
    configuration.write_text('[gateway]\nid = "gw-1"\n' + _blocks(login, "toml", secured)[0])
    credentials.mkdir()
    secrets = [block for block in _blocks(login, "properties", secured) if "security.protocol" not in block]
    (credentials / _SECRET_FILE).write_text(secrets[0])
    return load.load(configuration, {}).kafka


def install_cloud(login: str, secured: SecuredBroker, folder: Path) -> tuple[str, ...]:
    """Write the job's file of a recipe into the folder `credentials`; return the options that the recipe adds."""
    credentials = folder / "credentials"
    credentials.mkdir()
    [properties] = [block for block in _blocks(login, "properties", secured) if "security.protocol" in block]
    file = credentials / _SECRET_FILE
    file.touch(mode=0o600)
    file.write_text(properties)
    options = _blocks(login, "sh", secured)
    return tuple(shlex.split(options[0])) if options else ()


def _blocks(login: str, language: str, secured: SecuredBroker) -> list[str]:
    section = _section(login)
    changes = re.findall(r"`([\w.-]+)` in\splace of `([\w.-]+)`", section)
    if changes:  # to the first recipe
        section = _section(LOGINS[0])
        for new, old in changes:
            section = section.replace(old, new)
    found = re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return [_localised(block, login, secured) for block in found]


def _section(login: str) -> str:
    return PAGE.partition(f"\n## {login}\n")[2].partition("\n## ")[0]


def _localised(block: str, login: str, secured: SecuredBroker) -> str:
    for name, value in {
        "kafka-1:9093": _address(login, secured),
        "kafka-1:9094": _address(login, secured),
        "/etc/oncegate/kafka": str(secured.folder),
        "https://tokens.example/token": secured.endpoint.url,
        "PASSWORD-OF-GATEWAY": PASSWORDS[GATEWAY],
        "PASSWORD-OF-CLOUD": PASSWORDS[CLOUD],
    }.items():
        block = block.replace(name, value)
    return block


def _address(login: str, secured: SecuredBroker) -> str:
    return secured.tls if login == "Client certificates" else secured.sasl
