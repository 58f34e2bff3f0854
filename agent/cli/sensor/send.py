"""`oncegate send`: send an event as a sensor does, and resend it until it is answered."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from agent.cli import api
from agent.cli import arguments as arguments_
from agent.cli.arguments import timestamp
from agent.cli.failures import FAILURE, CommandError, UsageError
from agent.cli.sensor.senders import Body, CoapSender, HttpSender, Result, Target, read_target
from agent.coap.errors import CoapError, CredentialsError
from agent.coap.oscore.serving import check_installed
from agent.config import load
from agent.decode.decoded import InvalidEvent
from agent.decode.event_map import NO_PARAMETERS, number_or_text, to_event
from agent.terminal import Colour, count, json_line, paint, printable
from contract import cbor
from contract.fingerprint import fingerprint, needs_label

JSON = "one JSON object for each request"
EXAMPLES = """examples:
  oncegate send temperature=21.5 --device urn:dev:mac:00158d0001a2b3c4 --id 17
  oncegate send temperature=21.5 --device urn:dev:mac:00158d0001a2b3c4 --id 17 --repeat 3
  oncegate send door=open battery=87 --unit battery=% --device door-2 --time now --coap gateway.local
  oncegate send level=3 --device tank-1 --boot 4 --id 1 --http https://gateway:8580 --token-file tank-1.token
  oncegate send level=3 --device urn:tank:1 --id 2 --coap gateway.local --credentials tank-1.json

An unanswered request is resent after 2 to 3 s, and each time after twice as long. With --repeat the same event is sent
in new requests, as by a sensor that has not received the answer. A CoAP response does not distinguish new events
from duplicates; on the gateway itself the agent's HTTP interface does.

--credentials protects the request by OSCORE. Use credentials of their own, not those of a running sensor, with which it
would share sequence numbers; the next one is kept in FILE.number.

exit codes: 0 accepted, or a duplicate; 1 refused, or no answer; 2 wrong usage
"""
_FORMATS = {"json": (50, "application/json"), "cbor": (60, "application/cbor")}
_HERE = "127.0.0.1"
_LOOPBACK = (_HERE, "::1", "localhost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "values",
        nargs="+",
        type=read_value,
        metavar="NAME=VALUE",
        help="a reading; numbers, true, false, null and JSON are read as such, anything else is text",
    )
    parser.add_argument("--device", required=True, metavar="URN", help="the device of the event")
    parser.add_argument("--id", type=number_or_text, metavar="ID", help="the sensor's own event id")
    parser.add_argument("--boot", type=number_or_text, metavar="BOOT", help="the sensor's boot count or id")
    parser.add_argument("--time", type=read_time, metavar="TIME", help="now, milliseconds, or a date and a time")
    parser.add_argument("--type", metavar="TYPE", help="kind of event (default: reading)")
    parser.add_argument(
        "--unit", action="append", type=read_unit, default=[], metavar="NAME=UNIT", help="the unit of a reading"
    )
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--coap", metavar="HOST[:PORT]", help="the gateway (default: this machine)")
    target.add_argument("--http", metavar="URL", help="send over HTTP, such as to http://127.0.0.1:8580")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file with the bearer token for HTTP, mode 600")
    parser.add_argument(
        "--credentials", type=Path, metavar="FILE", help="the output of `oncegate credentials`, mode 600, for OSCORE"
    )
    parser.add_argument("--format", choices=tuple(_FORMATS), default="json", help="format of the body (default: json)")
    parser.add_argument(
        "--repeat", type=arguments_.positive, default=1, metavar="N", help="send the same event in N requests"
    )
    parser.add_argument(
        "--retransmits",
        type=arguments_.not_negative,
        default=4,
        metavar="N",
        help="how often an unanswered request is resent (default: 4)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Send the event, and print the outcome of each request; return 1 where one was not stored."""
    with ExitStack() as opened:
        try:
            event = event_of(arguments)
            sender = _sender(arguments, opened)
        except (ValueError, api.ApiError, CredentialsError) as error:
            raise UsageError(str(error)) from error
        if arguments.id is None and arguments.time is None:
            print("oncegate: without --id or --time, each request is an event of its own", file=sys.stderr)
        return _send(_encode(event, arguments.format), sender, arguments)


def _send(body: Body, sender: CoapSender | HttpSender, arguments: argparse.Namespace) -> int:
    stored = True
    for _ in range(arguments.repeat):
        begun = time.monotonic()
        try:
            result = sender.send(body)
        except CoapError as error:
            raise CommandError(str(error)) from error
        except (OSError, api.ApiError) as error:
            raise CommandError(f"{arguments.coap or arguments.http or _HERE}: {error}") from error
        result = replace(result, seconds=round(time.monotonic() - begun, 3))
        stored &= result.stored
        print(json_line(asdict(result)) if arguments.json else _line(result), flush=True)
    return 0 if stored else FAILURE


def _sender(arguments: argparse.Namespace, opened: ExitStack) -> CoapSender | HttpSender:
    """Return the sender for the target; raise ValueError, ApiError or CredentialsError."""
    if arguments.http:
        if arguments.credentials is not None:
            raise CredentialsError("--credentials are for CoAP; over HTTP use https:// and --token-file")
        return HttpSender(api.Api(arguments.http, api.read_token(arguments.token_file)), arguments.retransmits)
    settings = load.load_or_defaults(arguments.config, required=arguments.coap is None)
    host, _, port = settings.coap.bind.rpartition(":")
    own = Target({"[::]": _HERE, "0.0.0.0": _HERE}.get(host, host.strip("[]")), int(port))
    target = own if arguments.coap is None else read_target(arguments.coap)
    try:
        own_api = api.own_api(settings.http) if target == own or target.host in _LOOPBACK else None
    except api.ApiError:
        own_api = None
    context = None
    if arguments.credentials is not None:
        check_installed()
        from agent.cli.sensor.protection import open_context

        context = opened.enter_context(open_context(arguments.credentials))
    return CoapSender(target, arguments.retransmits, own_api, context)


def _encode(event: dict[str, object], format_: str) -> Body:
    content_format, media_type = _FORMATS[format_]
    content = cbor.encode_map(event) if format_ == "cbor" else json.dumps(event, ensure_ascii=False).encode()
    try:
        read = to_event(event, NO_PARAMETERS, fallback="")
        own = None if needs_label(read) else fingerprint(read).hex()
    except InvalidEvent:  # the gateway's response has the reason
        own = None
    return Body(content, content_format, media_type, str(event["device"]), own)


def _line(result: Result) -> str:
    words = [paint(result.outcome, Colour.GOOD if result.stored else Colour.BAD), result.code, result.fingerprint or ""]
    tries = count(result.transmissions, "transmission")
    words.append(f"{tries}, {result.seconds:.3f} s" if result.stored else f"{printable(result.reason)} ({tries})")
    return "  ".join(word for word in words if word)


NOW = "now"


def read_value(text: str) -> tuple[str, object]:
    """Read NAME=VALUE: VALUE is JSON where it can be read as such, else text."""
    name, equals, written = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUE, such as temperature=21.5")
    try:
        value = json.loads(written, parse_constant=lambda _: written)
    except (ValueError, RecursionError):
        value = written
    return name, value


def read_unit(text: str) -> tuple[str, str]:
    """Read NAME=UNIT."""
    name, equals, unit = text.partition("=")
    if not equals or not name or not unit:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=UNIT, such as temperature=Cel")
    return name, unit


def read_time(text: str) -> int:
    """Read `now`, or a timestamp; return milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000 if text == NOW else timestamp(text)


def event_of(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the event as a map of its fields; raise ValueError where a name occurs twice."""
    event: dict[str, object] = {"device": arguments.device}
    for name in ("type", "id", "boot", "time"):
        if (value := getattr(arguments, name)) is not None:
            event[name] = value
    event["data"] = _unique(arguments.values)
    if arguments.unit:
        event["units"] = _unique(arguments.unit)
    return event


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"{name!r} occurs twice")
        values[name] = value
    return values
