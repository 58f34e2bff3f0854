"""Builds the delivery of a body on the command line as the receiving protocol would build it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from agent.cli.arguments import read_input
from agent.cli.failures import CommandError
from agent.coap.message import QueryError, media_of, read_query
from agent.config.mistakes import suggestion
from agent.config.settings import MappingSettings, MqttSettings, Settings
from agent.config.subscriptions import FORMATS
from agent.delivery import Delivery, ForeignFormat, Media

ZIGBEE2MQTT = "zigbee2mqtt"
MEDIA = {**FORMATS, ZIGBEE2MQTT: Media.ZIGBEE2MQTT}
_SENDER = "coap://[::1]"


class NotADelivery(CommandError):  # noqa: N818  # the name states the problem
    """The gateway would not read events from this body; the message is the reason."""


def read_body(name: str, *, hexadecimal: bool) -> bytes:
    """Return the bytes of a file or of the standard input; raise OSError, or NotADelivery."""
    content = read_input(name)
    if not hexadecimal:
        return content
    try:
        return bytes.fromhex(content.decode())
    except ValueError:
        raise NotADelivery("--hex: expected hex digits") from None


def delivery_of(body: bytes, options: argparse.Namespace, settings: Settings) -> Delivery:
    """Return the delivery, by the options of `add_arguments`; raise OSError, or NotADelivery."""
    if options.mapping is not None:
        return _mapped(body, options, settings.mappings)
    if options.topic is not None:
        return _published(body, options, settings.mqtt)
    if options.format == ZIGBEE2MQTT:
        raise NotADelivery("--format zigbee2mqtt: needs --topic, which names the device")
    texts = [unquote(text) for word in options.query for text in word.removeprefix("?").split("&")]
    try:
        query = read_query(texts).words
    except QueryError as error:
        raise NotADelivery(str(error)) from None
    media = media_of(None, body) if options.format is None else MEDIA[options.format]
    return Delivery(body, media, "coap", _SENDER, options.device, query)


def _mapped(body: bytes, options: argparse.Namespace, mappings: MappingSettings) -> Delivery:
    """Return the delivery of a payload that a mapping reads, from the topic or over HTTP."""
    from agent.mappings.catalog import catalog

    name, known = options.mapping, catalog(mappings.own, mappings.folder)
    if name not in known:
        raise NotADelivery(f"--mapping: unknown mapping {name!r}{suggestion(name, known, '; see oncegate mappings')}")
    levels = [] if options.topic is None else options.topic.split("/")
    via, sender = ("http", "http://[::1]") if options.topic is None else ("mqtt", f"mqtt:{options.topic}")
    return Delivery(body, ForeignFormat(known[name], levels, {}), via, sender, options.device)


def _published(body: bytes, options: argparse.Namespace, mqtt: MqttSettings) -> Delivery:
    """Return the delivery of a message from an MQTT broker."""
    from agent.mqtt.routes import Routes
    from agent.mqtt.zigbee_names import DEVICES, DeviceListReader, Kind, ZigbeeNames

    topic, names = options.topic, ZigbeeNames()
    if options.devices is not None:
        reader = DeviceListReader(names.update, DEVICES, read_input(str(options.devices)))
        if not reader.read(lambda: False):
            raise NotADelivery(f"{options.devices}: not Zigbee2MQTT's list of devices: {reader.problem}")
    else:
        names.list_missing = True
    routes = Routes(mqtt, names)
    delivery = routes.subscribed_delivery(topic, body)
    if delivery is not None:
        return delivery if options.format is None else replace(delivery, media=MEDIA[options.format])
    name = routes.zigbee_name(topic)
    if name is None:
        raise NotADelivery(f"no subscription matches the topic {topic}: the gateway does not receive it")
    kind, delivery = routes.zigbee_delivery(name, body)
    if kind is Kind.STATE:
        raise NotADelivery(f"a message under {topic} is state, and no event")
    if kind is Kind.UNKNOWN and options.devices is None:
        hint = f"mosquitto_sub -C 1 -t {routes.devices_topic} > devices.json, then --devices devices.json"
        raise NotADelivery(f"the name {name} is known from Zigbee2MQTT's list of devices only: {hint}")
    if kind is Kind.UNKNOWN:
        raise NotADelivery(f"{name}: {routes.unknown_reason}")
    return delivery


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that describe a body."""
    parser.add_argument(
        "--format", choices=tuple(MEDIA), help="format of the body (default: JSON or CBOR, by its first byte)"
    )
    parser.add_argument("--mapping", metavar="NAME", help="the mapping that reads it: oncegate mappings")
    parser.add_argument("--topic", metavar="TOPIC", help="the MQTT topic on which it was published")
    parser.add_argument("--devices", type=Path, metavar="FILE", help="Zigbee2MQTT's list: its message bridge/devices")
    parser.add_argument("--query", action="append", default=[], metavar="WORDS", help="CoAP's Uri-Query: 'd=x&id=17'")
    parser.add_argument("--device", metavar="URN", help="the device that OSCORE or an HTTP token has authenticated")
    parser.add_argument("--hex", action="store_true", help="the body is written as hex digits")
