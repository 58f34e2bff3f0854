"""`oncegate check`: check the configuration, and name all its mistakes."""

import argparse
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from agent.cli.doctor.files import as_user, check_hidden, check_secrets, service_user, unreadable
from agent.cli.doctor.finding import Condition
from agent.cli.doctor.machine import check_fingerprints, check_memory, check_store_bound
from agent.cli.failures import USAGE, print_error
from agent.coap.errors import CredentialsError
from agent.coap.oscore.credentials import read_credentials
from agent.coap.oscore.serving import check_installed
from agent.config import load
from agent.config.load import SECTIONS, Source, key_of
from agent.config.mistakes import ConfigurationError, Mistake
from agent.config.settings import HttpSettings, KafkaSettings, MqttSettings, OscoreSettings, Settings
from agent.config.subscriptions import UNIDENTIFIED
from agent.forward.errors import KafkaSettingsError
from agent.forward.forwarder import mode_of
from agent.forward.kafka.client import LastError, open_admin, open_signer, producer_config
from agent.http.address import HttpSettingsError
from agent.http.auth.access import open_access, open_tls
from agent.identity.changed import EFFECT, basis, changed
from agent.store.errors import StoreError
from agent.store.facts import IDENTITY_BASIS
from agent.store.layout import FILE_NAME
from agent.store.schema import database, tables
from agent.terminal import Colour, duration, json_line, paint

JSON = "one JSON object, with all mistakes"
EXAMPLES = """examples:
  oncegate check
  oncegate check --config ./oncegate.toml && sudo systemctl restart oncegate
  oncegate check --json | jq -r '.mistakes[] | "\\(.file):\\(.line): \\(.message)"'
"""
_UNKNOWN_PROPERTY = re.compile(r'No such configuration property: "([^"]+)"')
_NAMES = sorted(filter(None, SECTIONS), key=len, reverse=True)
_KEY = re.compile(rf"({'|'.join(map(re.escape, _NAMES))})\.([a-z_]+)(: )?")


def run(arguments: argparse.Namespace) -> int:
    """Print all mistakes; return 2 where there are any."""
    warnings: list[str] = []
    try:
        document, source = load.read(arguments.config)
        sections, mistakes = load.examine(document, source, os.environ)
        if not mistakes:
            warnings += _warnings(load.settings_of(sections), arguments.config)
        mistakes = ConfigurationError(*mistakes, *_mistakes_around(sections, source)).mistakes
    except ConfigurationError as error:
        mistakes = error.mistakes
    if arguments.json:
        listed = [asdict(mistake) for mistake in mistakes]
        result = {"configuration": str(arguments.config), "fine": not mistakes}
        print(json_line({**result, "mistakes": listed, "warnings": warnings}))
    else:
        for mistake in mistakes:
            print_error(str(mistake))
        for warning in warnings:
            print(f"{paint('warning:', Colour.WARNING)} {warning}")
        if not mistakes:
            print(f"{arguments.config}: fine")
    return USAGE if mistakes else 0


def _mistakes_around(sections: Mapping[str, Any], source: Source) -> Iterator[Mistake]:
    """Yield the mistakes in the files and Kafka properties of the valid sections."""
    for file, reason in unreadable(sections):
        yield source.mistake(file.section, file.key, reason)
    if "http" in sections:
        yield from _http_mistakes(sections["http"], source)
    if "coap" in sections and "coap.oscore" in sections:
        yield from _oscore_mistakes(sections, source)
    if "mqtt" in sections:
        yield from _mqtt_mistakes(sections["mqtt"], source)
    if "kafka" in sections:
        gateway = sections.get("gateway")
        yield from _kafka_mistakes(sections["kafka"], "gateway" if gateway is None else gateway.id, source)


def _http_mistakes(settings: HttpSettings, source: Source) -> Iterator[Mistake]:
    for open_ in (open_access, open_tls) if settings.enabled else ():
        try:
            open_(settings)
        except HttpSettingsError as error:
            yield _placed(str(error), source)


def _oscore_mistakes(sections: Mapping[str, Any], source: Source) -> Iterator[Mistake]:
    try:
        _unusable_credentials(sections)
    except CredentialsError as error:
        key = "coap.oscore.credentials_dir"
        yield _placed(str(error) if str(error).startswith(key) else f"{key}: {error}", source)


def _unusable_credentials(sections: Mapping[str, Any]) -> Sequence[str]:
    """Return why single files of sensors cannot be used; raise CredentialsError where the agent would not start."""
    settings: OscoreSettings = sections["coap.oscore"]
    if not sections["coap"].enabled or settings.credentials_dir is None:
        return ()
    check_installed()
    with as_user(service_user(sections)):
        return read_credentials(settings.credentials_dir).errors


def _mqtt_mistakes(settings: MqttSettings, source: Source) -> Iterator[Mistake]:
    if not settings.enabled:
        return
    from agent.mqtt.client import read_password, read_tls  # its library is slow to load

    reads = {"password_file": read_password, **({"tls": read_tls} if settings.tls else {})}
    for key, read in reads.items():
        try:
            read(settings)
        except (OSError, ValueError) as error:
            yield source.mistake("mqtt", key, str(error))


def _kafka_mistakes(settings: KafkaSettings, gateway: str, source: Source) -> Iterator[Mistake]:
    """Yield the mistakes that Kafka's client finds; it names one unknown property at a time."""
    try:
        producer_config(settings, mode_of(settings, gateway).fixed)
        open_signer(settings)
    except KafkaSettingsError as error:
        yield _placed(str(error), source)
        return
    while True:
        try:
            open_admin(settings, LastError())
            return
        except KafkaSettingsError as error:
            unknown = _UNKNOWN_PROPERTY.search(str(error))
            if unknown is None or unknown[1] not in settings.properties:
                yield _placed(str(error), source)
                return
        name = unknown[1]
        line = source.line("kafka", "properties", name)
        yield Mistake(source.name, line, "kafka", "properties", f"Kafka's client has no property {name}")
        others = {key: value for key, value in settings.properties.items() if key != name}
        settings = replace(settings, properties=others)


def _placed(text: str, source: Source) -> Mistake:
    """Return the mistake in an error's text, placed by the section and key at its beginning."""
    match = _KEY.match(text)
    if match is None:
        return Mistake(source.name, None, "", "", text)
    section, key, colon = match.groups()
    known = {key_of(option) for option in fields(SECTIONS[section])}
    return source.mistake(section, key if key in known else "", text[match.end() :] if colon else text)


def _warnings(settings: Settings, configuration: Path) -> Iterator[str]:
    """Yield settings that are allowed but probably unintended."""
    mqtt, identity, lanes = settings.mqtt, settings.identity, settings.forward.lanes
    if not (settings.coap.enabled or settings.http.enabled or mqtt.enabled):
        yield "coap, http and mqtt are all disabled: no event can arrive"
    if mqtt.enabled and settings.devices.require == "authenticated":
        yield "devices.require: nobody is authenticated to the gateway over MQTT, and all of its messages are rejected"
    if mqtt.subscriptions and not mqtt.enabled:
        yield "mqtt.subscriptions: mqtt.enabled is false: nothing is subscribed"
    for subscription in mqtt.subscriptions:
        if not subscription.identifies:
            yield f"mqtt.subscriptions {subscription.topic}: {UNIDENTIFIED}"
    for lane in lanes:  # the store knows an age no longer than the retention
        if lane.time_to_live_seconds is not None and lane.time_to_live_seconds > identity.retention_seconds:
            limit = duration(identity.retention_seconds)
            yield f"forward.lanes: the events of {lane.name} expire after identity.retention ({limit}) at the latest"
    sections = load.parts_of(settings)
    yield from _changed_identity(settings, sections)
    findings = [*check_memory(identity, len(lanes)), *check_store_bound(settings.store, len(lanes))]
    with suppress(OSError, StoreError, sqlite3.Error):  # nothing of a store that cannot be read, as doctor reports
        findings += check_fingerprints(settings.gateway.state_dir, settings.store, identity, len(lanes))
    findings += [*check_hidden(sections), *check_secrets(settings, configuration)]
    with suppress(CredentialsError):  # a mistake, which is named above
        yield from (f"coap.oscore.credentials_dir: {text}" for text in _unusable_credentials(sections))
    for finding in findings:
        if finding.condition is not Condition.FINE:
            yield f"{finding.check}: {finding.text}; {finding.hint}"


def _changed_identity(settings: Settings, sections: Mapping[str, Any]) -> Iterator[str]:
    """Yield the effect of each changed rule or mapping, where this user may read the store."""
    path = settings.gateway.state_dir / FILE_NAME
    try:
        with as_user(service_user(sections)), closing(database.open_for_reading(path)) as connection:
            fact = tables.read_fact(connection, IDENTITY_BASIS)
    except (StoreError, sqlite3.Error, OSError):  # no store yet, or doctor reports it
        return
    for name in changed(basis(settings.identity, settings.mqtt, settings.mappings), fact):
        yield f"{name}: not as at the last start: {EFFECT}"
