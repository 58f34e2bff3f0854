"""`oncegate-sim link`: a lossy link between real sensors and a gateway, and a check of how the sensors behave on it."""

import argparse
import asyncio
import signal
from collections.abc import Sequence
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from simulators.arguments import PORTS, add_seed, make_parser, positive, target
from simulators.errors import SimulatorError
from simulators.link.faults import link_profile
from simulators.link.udp import Link, Target
from simulators.observed_link.observer import MEANINGS, Observer
from simulators.scenario import LinkPlan, find
from simulators.strict_toml import TomlError
from simulators.terminal import FAILED, FINE, guarded, open_console

SETTLE_SECONDS = 5.0
"""How long a sensor may still resend, once all of its events have an outcome."""
POLL_SECONDS = 0.2
DETAILS_MAX = 5
_EXAMPLES = """examples:
  %(prog)s --target coap://gateway.lan --loss 0.3                  lose three of ten datagrams, until Ctrl-C
  %(prog)s --target coap://127.0.0.1 --listen 0.0.0.0:5684 --events 20 --answer-loss 0.5
  %(prog)s --target 'coap://[fd00::1]' --scenario lossy-radio      the link of a scenario
"""


def main(arguments: Sequence[str], program: str) -> int:
    """Run the link until all events have an outcome or Ctrl-C; exit status 0 where nothing was found."""
    given = _parse(arguments, program)
    console = open_console()
    return guarded(lambda: asyncio.run(_run(given, console)), "link", console, interrupted="interrupted")


def _parse(arguments: Sequence[str], program: str) -> argparse.Namespace:
    description = (
        "Forward CoAP between real sensors and a gateway over a link that loses, repeats and delays, and say what the "
        "sensors do wrong. Send your sensors to the address of --listen. Exit status 0: nothing was found; 1: "
        "something was, or an event has no ACK; 2: wrong usage."
    )
    parser = make_parser(program, description, _EXAMPLES)
    add = parser.add_argument
    add("--target", required=True, type=_gateway, metavar="URL", help="the gateway: coap://HOST[:PORT]")
    add("--listen", type=_address, default=("::", PORTS["coap"]), metavar="HOST:PORT", help="default: [::]:5683")
    add("--scenario", metavar="NAME", help="take the link of this scenario")
    add("--loss", type=float, default=0.0, metavar="RATE", help="share of requests that are lost, from 0 to 1")
    add("--answer-loss", type=float, default=0.0, metavar="RATE", help="share of answers that are lost")
    add("--duplicated", type=float, default=0.0, metavar="RATE", help="share of datagrams that arrive twice")
    add("--delay", type=float, default=0.0, metavar="SECONDS", help="delay of each datagram")
    add(
        "--events",
        type=positive,
        metavar="N",
        help="the number of events that your sensors have; ends once all are settled",
    )
    add_seed(parser)
    given = parser.parse_args(arguments)
    try:
        given.link = LinkPlan(
            request_loss=given.loss,
            answer_loss=given.answer_loss,
            duplicated=given.duplicated,
            delay_seconds=given.delay,
        )
        if given.scenario is not None:
            given.link = find(given.scenario).link
    except (ValueError, TomlError) as error:
        parser.error(str(error))
    return given


async def _run(given: argparse.Namespace, console: Console) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    observer = Observer()
    try:
        async with Link([given.target], link_profile(given.link), given.seed, given.listen, observer) as link:
            host, port = link.address
            console.print(f"link: listen={host} port={port} seed={given.seed}; Ctrl-C ends it", highlight=False)
            await _until_settled(observer, given.events, stop)
    except OSError as error:
        raise SimulatorError(f"cannot listen on {given.listen[0]} port {given.listen[1]}: {error}") from error
    observer.finish(given.events)
    return show(observer, console)


async def _until_settled(observer: Observer, events: int | None, stop: asyncio.Event) -> None:
    """Wait for a signal, or until so many contents have an outcome and the sensors have had time to resend one."""
    while not stop.is_set():
        pause = SETTLE_SECONDS if events is not None and observer.settled >= events else POLL_SECONDS
        try:
            await asyncio.wait_for(stop.wait(), pause)
        except TimeoutError:
            if pause == SETTLE_SECONDS:
                return


def show(observer: Observer, console: Console) -> int:
    """Print what was seen of each sensor and all findings; return the exit status."""
    table = Table("sensor", "contents", "requests", "transmissions", "acknowledged", "refused")
    for name, seen in observer.sensors.items():
        counts = (seen.contents, seen.requests, seen.transmissions, seen.acked, seen.refused)
        table.add_row(name, *map(str, counts))
    console.print(table)
    for kind, meaning in MEANINGS.items():
        details = sorted(
            ((count, detail) for (of, detail), count in observer.findings.items() if of == kind), reverse=True
        )
        if details:
            console.print(f"{kind}: {sum(count for count, _ in details)}: {meaning}", style="red", soft_wrap=True)
            for count, detail in details[:DETAILS_MAX]:
                console.print(f"  {count} x {detail}", highlight=False, soft_wrap=True)
    if not observer.sensors:
        console.print("No sensor has sent a request.", style="red")
    elif not observer.findings:
        console.print("Nothing was found: each event was acknowledged, and was resent as it should be.", style="green")
    return FINE if observer.sensors and not observer.findings else FAILED


def _gateway(text: str) -> Target:
    return target(text, ["coap"])[1]


def _address(text: str) -> Target:
    url = urlsplit(f"//{text}")
    try:
        port = url.port
    except ValueError:
        port = None
    if not url.hostname or port is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT")
    return url.hostname, port
