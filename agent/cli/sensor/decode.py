"""`oncegate decode`: the events in a body as the gateway sees them, or why it refuses them."""

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from struct import pack, unpack
from urllib.parse import unquote

from agent.admission import Admission, ForbiddenError
from agent.cli.arguments import STANDARD_INPUT, read_input
from agent.cli.failures import FAILURE, CommandError
from agent.coap.message import QueryError, media_of, read_query
from agent.config import load
from agent.config.mistakes import suggestion
from agent.config.settings import MappingSettings, MqttSettings, Settings
from agent.config.subscriptions import FORMATS
from agent.config.ways import limits
from agent.decode.decoded import DecodeError, UnknownFormat
from agent.decode.delivery_body import decode
from agent.delivery import Delivery, ForeignFormat, Media
from agent.identity.identify import identify
from agent.identity.warnings import advice_on
from agent.terminal import Colour, json_line, paint, printable
from contract.record import ClockTrust

JSON = "one JSON object a line"
EXAMPLES = """examples:
  echo '{"device":"urn:dev:mac:00158d0001a2b3c4","id":17,"data":{"temperature":21.5}}' | oncegate decode
  oncegate decode --format senml-json --query d=urn:example:tank-1 pack.json
  echo a26664657669636561786269640a | oncegate decode --hex
  oncegate decode --topic zigbee2mqtt/kitchen --devices devices.json message.json
  oncegate decode --mapping tasmota --topic tele/kitchen/SENSOR message.json
  oncegate rejected --number 17 | jq -r .raw | oncegate decode --hex

The rules and lists of the configuration apply where there is one. Nothing is sent or stored. `-` stands for the
fingerprint of an event with neither id nor time: the gateway makes it with the number that it assigns to the event.

exit codes: 0 every event is valid; 1 something is refused or rejected; 2 wrong usage or configuration
"""
ZIGBEE2MQTT = "zigbee2mqtt"
MEDIA = {**FORMATS, ZIGBEE2MQTT: Media.ZIGBEE2MQTT}
_SENDER = "coap://[::1]"
_FLOATS = (("<e", 65_504.0, 3), ("<f", 3.4e38, 7))
"""Floats of 16 and 32 bits: their form, a bound on their values, and the digits of decimals that they tell apart."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "file", nargs="?", default=STANDARD_INPUT, metavar="FILE", help="the body; - is the standard input (default)"
    )
    parser.add_argument(
        "--format", choices=tuple(MEDIA), help="format of the body (default: JSON or CBOR, by its first byte)"
    )
    parser.add_argument("--mapping", metavar="NAME", help="the mapping that reads it: oncegate mappings")
    parser.add_argument("--topic", metavar="TOPIC", help="the MQTT topic on which it was published")
    parser.add_argument("--devices", type=Path, metavar="FILE", help="Zigbee2MQTT's list: its message bridge/devices")
    parser.add_argument("--query", action="append", default=[], metavar="WORDS", help="CoAP's Uri-Query: 'd=x&id=17'")
    parser.add_argument("--device", metavar="URN", help="the device that OSCORE or an HTTP token has authenticated")
    parser.add_argument("--hex", action="store_true", help="the body is written as hex digits")


def run(arguments: argparse.Namespace) -> int:
    """Print events, rejected events, or the refusal."""
    settings = load.load_or_defaults(arguments.config)
    try:
        body = read_input(arguments.file)
        delivery = _delivery(_from_hex(body) if arguments.hex else body, arguments, settings)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    outcomes = list(_outcomes(delivery, settings))
    for outcome in outcomes:
        print(json_line(outcome) if arguments.json else _text(outcome))
    return 0 if all(outcome["outcome"] in ("event", "skipped") for outcome in outcomes) else FAILURE


def _from_hex(body: bytes) -> bytes:
    try:
        return bytes.fromhex(body.decode())
    except ValueError:
        raise CommandError("--hex: expected hex digits") from None


def _delivery(body: bytes, options: argparse.Namespace, settings: Settings) -> Delivery:
    """Return the delivery of a body as the receiving protocol would build it; raise OSError, or CommandError."""
    if options.mapping is not None:
        return _mapped(body, options, settings.mappings)
    if options.topic is not None:
        return _published(body, options, settings.mqtt)
    if options.format == ZIGBEE2MQTT:
        raise CommandError("--format zigbee2mqtt: needs --topic, which names the device")
    texts = [unquote(text) for word in options.query for text in word.removeprefix("?").split("&")]
    try:
        query = read_query(texts).words
    except QueryError as error:
        raise CommandError(str(error)) from None
    media = media_of(None, body) if options.format is None else MEDIA[options.format]
    return Delivery(body, media, "coap", _SENDER, options.device, query)


def _mapped(body: bytes, options: argparse.Namespace, mappings: MappingSettings) -> Delivery:
    """Return the delivery of a payload that a mapping reads, from the topic or over HTTP."""
    from agent.mappings.catalog import catalog

    name, known = options.mapping, catalog(mappings.own, mappings.folder)
    if name not in known:
        raise CommandError(f"--mapping: unknown mapping {name!r}{suggestion(name, known, '; see oncegate mappings')}")
    levels = [] if options.topic is None else options.topic.split("/")
    via, sender = ("http", "http://[::1]") if options.topic is None else ("mqtt", f"mqtt:{options.topic}")
    return Delivery(body, ForeignFormat(known[name], levels, {}), via, sender, options.device)


def _published(body: bytes, options: argparse.Namespace, mqtt: MqttSettings) -> Delivery:
    """Return the delivery of a message from an MQTT broker."""
    from agent.mqtt.routes import Routes
    from agent.mqtt.zigbee_names import DEVICES, Kind, ZigbeeNames, read_list

    topic, names = options.topic, ZigbeeNames()
    if options.devices is not None:
        try:
            list(read_list(names, DEVICES, read_input(str(options.devices))))
        except (ValueError, RecursionError) as error:
            raise CommandError(f"{options.devices}: not Zigbee2MQTT's list of devices: {error}") from None
    else:
        names.list_missing = True
    routes = Routes(mqtt, names)
    delivery = routes.subscribed_delivery(topic, body)
    if delivery is not None:
        return delivery if options.format is None else replace(delivery, media=MEDIA[options.format])
    name = routes.zigbee_name(topic)
    if name is None:
        raise CommandError(f"no subscription matches the topic {topic}: the gateway does not receive it")
    kind, delivery = routes.zigbee_delivery(name, body)
    if kind is Kind.STATE:
        raise CommandError(f"a message under {topic} is state, and no event")
    if kind is Kind.UNKNOWN and options.devices is None:
        hint = f"mosquitto_sub -C 1 -t {routes.devices_topic} > devices.json, then --devices devices.json"
        raise CommandError(f"the name {name} is known from Zigbee2MQTT's list of devices only: {hint}")
    if kind is Kind.UNKNOWN:
        raise CommandError(f"{name}: {routes.unknown_reason}")
    return delivery


_UNDECODABLE = ("4.00", 400)
_CODES: Mapping[type[Exception], tuple[str, int]] = {UnknownFormat: ("4.15", 415), ForbiddenError: ("4.03", 403)}
"""The responses of CoAP and HTTP to a body with such an error."""


def _outcomes(delivery: Delivery, settings: Settings) -> Iterator[dict[str, object]]:
    """Yield what the gateway's pipeline makes of a delivery, in the same steps."""
    section = limits()[delivery.via].name
    bytes_max = getattr(settings, section).max_body_bytes
    if (size := len(delivery.body)) > bytes_max:
        bound = f"{section}.max_body_bytes, {bytes_max}"
        yield _refusal(delivery, f"the body has {size} bytes, more than {bound}", ("4.13", 413))
        return
    admission = Admission(replace(settings.devices, require="nothing"))  # a file has no sender
    try:
        decoded = admission.screen(delivery, decode(delivery))
    except (DecodeError, ForbiddenError) as error:
        yield _refusal(delivery, str(error), _CODES.get(type(error), _UNDECODABLE))
        return
    if not decoded.events and not decoded.rejected and decoded.skipped:
        yield {"outcome": "skipped"}
    elif not decoded.events:
        reason = decoded.rejected[0].reason if decoded.rejected else "the body holds no event"
        yield _refusal(delivery, reason, _UNDECODABLE)
        return
    for event in decoded.events:
        candidate = identify(event, delivery.via, 0, ClockTrust.TRUSTED, settings.identity)
        fingerprint = None if candidate.fingerprint is None else candidate.fingerprint.hex()
        value = json.loads(b"{" + candidate.tail + b"}")
        del value["received"]
        advice = {**advice_on(event), **_advice_on_floats(value.get("data"))}
        yield {
            "outcome": "event",
            "fingerprint": fingerprint,
            "identity": list(candidate.fields),
            **value,
            **({"warnings": advice} if advice else {}),
        }
    for one in decoded.rejected:
        yield {"outcome": "rejected", "device": one.device, "reason": one.reason, "raw": one.raw.hex()}


def _advice_on_floats(data: object) -> dict[str, str]:
    """Return a warning of the first decimal shortened to a float of 32 or 16 bits."""
    if isinstance(data, dict | list):
        for one in data.values() if isinstance(data, dict) else data:
            if advice := _advice_on_floats(one):
                return advice
    if isinstance(data, float) and (decimal := _decimal_before(data)) is not None:
        return {"short-float": f"{data!r} seems to be {decimal} in 32 or 16 bits: send a double, or decimal digits"}
    return {}


def _decimal_before(number: float) -> str | None:
    """Return the short decimal behind a float of 16 or 32 bits; None where there is none."""
    for form, largest, digits_max in _FLOATS:
        if abs(number) > largest or unpack(form, pack(form, number))[0] != number:
            continue
        for digits in range(1, digits_max + 1):
            decimal = f"{number:.{digits}g}"
            if unpack(form, pack(form, float(decimal)))[0] == number:
                return None if float(decimal) == number else decimal
    return None


def _refusal(delivery: Delivery, reason: str, codes: tuple[str, int]) -> dict[str, object]:
    """Return the refusal of a whole body; a publisher has no answer, so that the gateway records its message."""
    if limits()[delivery.via].records_refused:
        return {"outcome": "rejected", "device": delivery.sender, "reason": reason, "raw": delivery.body.hex()}
    return {"outcome": "refused", "coap": codes[0], "http": codes[1], "reason": reason}


def _text(outcome: dict[str, object]) -> str:
    kind, reason = outcome["outcome"], printable(str(outcome.get("reason")))
    if kind == "refused":
        return f"{paint('refused', Colour.BAD)}  CoAP {outcome['coap']}, HTTP {outcome['http']}: {reason}"
    if kind == "skipped":
        return "skipped: the mapping says that it is no event"
    if kind == "rejected":
        return f"{paint('rejected', Colour.BAD)}  {printable(str(outcome['device']))}: {reason}"
    fields = {
        name: value for name, value in outcome.items() if name not in ("outcome", "fingerprint", "identity", "via")
    }
    lines = [paint(str(outcome["fingerprint"] or "-"), Colour.GOOD)]
    warnings = fields.pop("warnings", {})
    for name, value in fields.items():
        lines.append(f"  {name:9}  {printable(value) if isinstance(value, str) else json_line(value)}")
    if isinstance(warnings, Mapping):
        lines += [f"  {paint('warning  ', Colour.WARNING)}  {text}" for text in warnings.values()]
    return "\n".join(lines)
