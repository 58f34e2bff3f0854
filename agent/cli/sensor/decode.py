"""`oncegate decode`: the events in a body as the gateway sees them, or why it refuses them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from struct import pack, unpack

from agent.admission import Admission, ForbiddenError
from agent.cli.failures import FAILURE, CommandError
from agent.cli.sensor import bodies
from agent.config import load
from agent.config.settings import Settings
from agent.decode.decoded import Undecodable, UnknownFormat
from agent.decode.delivery_body import decode
from agent.delivery import Delivery
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
_CODES = {
    "UnknownFormat": ("4.15", 415),
    "Undecodable": ("4.00", 400),
    "ForbiddenError": ("4.03", 403),
    "_TooLargeError": ("4.13", 413),
}

_FLOATS = (("<e", 65_504.0, 3), ("<f", 3.4e38, 7))
"""Floats of 16 and 32 bits: their form, a bound on their values, and the digits of decimals that they tell apart."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="the body; - is the standard input (default)"
    )
    bodies.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print events, rejected events, or the refusal."""
    settings = load.load_or_defaults(arguments.config)
    try:
        body = bodies.read_body(arguments.file, hexadecimal=arguments.hex)
        delivery = bodies.delivery_of(body, arguments, settings)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    outcomes = list(_outcomes(delivery, settings))
    for outcome in outcomes:
        print(json_line(outcome) if arguments.json else _text(outcome))
    return 0 if all(outcome["outcome"] in ("event", "skipped") for outcome in outcomes) else FAILURE


class _TooLargeError(ValueError):
    """A body is larger than the gateway accepts."""


def _outcomes(delivery: Delivery, settings: Settings) -> Iterator[dict[str, object]]:
    """Yield what the gateway's pipeline makes of a delivery, in the same steps."""
    try:
        section, part = ("coap", settings.coap) if delivery.via == "coap" else ("mqtt", settings.mqtt)
        if (size := len(delivery.body)) > part.max_body_bytes:
            bound = f"{section}.max_body_bytes, {part.max_body_bytes}"
            raise _TooLargeError(f"the body has {size} bytes, more than {bound}")
        admission = Admission(replace(settings.devices, require="nothing"))  # a file has no sender
        decoded = admission.screen(delivery, decode(delivery))
        if not decoded.events and not decoded.rejected and decoded.skipped:
            yield {"outcome": "skipped"}
            return
        if not decoded.events:
            raise Undecodable(decoded.rejected[0].reason if decoded.rejected else "the body holds no event")
    except (UnknownFormat, Undecodable, ForbiddenError, _TooLargeError) as error:
        yield _refusal(delivery, error)
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
    """Return a warning of the first value that was a decimal before it became a float of 32 or 16 bits."""
    if isinstance(data, dict | list):
        for one in data.values() if isinstance(data, dict) else data:
            if advice := _advice_on_floats(one):
                return advice
    if isinstance(data, float) and (decimal := _decimal_before(data)) is not None:
        return {"short-float": f"{data!r} seems to be {decimal} in 32 or 16 bits: send a double, or decimal digits"}
    return {}


def _decimal_before(number: float) -> str | None:
    """Return the short decimal of which a number is the nearest float of 16 or 32 bits; None where it is none."""
    for form, largest, digits_max in _FLOATS:
        if abs(number) > largest or unpack(form, pack(form, number))[0] != number:
            continue
        for digits in range(1, digits_max + 1):
            decimal = f"{number:.{digits}g}"
            if unpack(form, pack(form, float(decimal)))[0] == number:
                return None if float(decimal) == number else decimal
    return None


def _refusal(delivery: Delivery, error: Exception) -> dict[str, object]:
    """Return the refusal of a whole body; a publisher has no answer, so that the gateway records its message."""
    if delivery.via != "coap":
        return {"outcome": "rejected", "device": delivery.sender, "reason": str(error), "raw": delivery.body.hex()}
    coap, http = _CODES[type(error).__name__]
    return {"outcome": "refused", "coap": coap, "http": http, "reason": str(error)}


def _text(outcome: dict[str, object]) -> str:
    if outcome["outcome"] == "refused":
        codes = f"CoAP {outcome['coap']}, HTTP {outcome['http']}"
        return f"{paint('refused', Colour.BAD)}  {codes}: {_plain(outcome, 'reason')}"
    if outcome["outcome"] == "skipped":
        return "skipped: the mapping says that it is no event"
    if outcome["outcome"] == "rejected":
        return f"{paint('rejected', Colour.BAD)}  {_plain(outcome, 'device')}: {_plain(outcome, 'reason')}"
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


def _plain(outcome: dict[str, object], name: str) -> str:
    return printable(str(outcome[name]))
