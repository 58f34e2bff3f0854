"""Runs the sensors of a scenario over its links, and watches the gateways meanwhile."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from simulators import fleet
from simulators.display import Display
from simulators.ledger import Ledger
from simulators.link.faults import link_profile, stream_profile
from simulators.link.tcp import StreamLink
from simulators.link.udp import Link
from simulators.scenario import Scenario, SensorKind
from simulators.sensors.endpoint import Timing
from simulators.sensors.field import Field, Targets

SAMPLE_SECONDS = 1.0
STATUS_SECONDS_MAX = 2.0
Address = tuple[str, int]


def clock() -> int:
    """Return the current time in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def link_to(
    scenario: Scenario,
    seed: int,
    coap: Sequence[Address],
    http: Address | None,
    mqtt: Address | None,
    token: str | None,
) -> AsyncIterator[Targets]:
    """Open the emulated links that the scenario's sensors need, in front of their targets."""
    kinds = {plan.kind for plan in scenario.fleets}
    async with AsyncExitStack() as stack:
        radio: Link | None = None
        if any(kind.protocol == "coap" for kind in kinds):
            radio = await stack.enter_async_context(Link(coap, link_profile(scenario.link), seed))

        async def stream(target: Address | None, *users: SensorKind) -> Address | None:
            if target is None or kinds.isdisjoint(users):
                return None
            proxy = StreamLink(target, stream_profile(scenario.link), scenario.link.resets, seed)
            return (await stack.enter_async_context(proxy)).address

        yield Targets(
            coap=None if radio is None else radio.address,
            http=await stream(http, SensorKind.HTTP),
            http_token=token,
            mqtt=await stream(mqtt, SensorKind.ZIGBEE, SensorKind.MAPPED),
            register_peer=(lambda _port, _name: None) if radio is None else radio.register_peer,
        )


async def sensors(
    scenario: Scenario,
    seed: int,
    ledger: Ledger,
    targets: Targets,
    stop: asyncio.Event,
    number: int = 0,
    reports: Reports | None = None,
) -> None:
    """Run the sensors until all events are settled, the settling time is over, or a stop is requested.

    They report for the scenario's time, and as long as the faults need `reports`: a fault without any would test
    nothing. The run's number makes their device addresses unique (`payloads.address`).
    """

    def is_over(moment: float) -> bool:
        return stop.is_set() or (moment >= scenario.seconds and (reports is None or reports.suffice.is_set()))

    field = Field(
        ledger=ledger,
        seed=seed,
        targets=targets,
        timing=Timing().faster(scenario.speed),
        is_over=is_over,
        clock=clock,
        run=number,
        may_report=None if reports is None else reports.enabled,
    )
    playing = asyncio.ensure_future(fleet.play(scenario.fleets, field))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((playing, stopping), timeout=scenario.seconds, return_when=asyncio.FIRST_COMPLETED)
        if reports is not None:
            sufficing = asyncio.ensure_future(reports.suffice.wait())
            await asyncio.wait((playing, stopping, sufficing), return_when=asyncio.FIRST_COMPLETED)
            sufficing.cancel()
        await asyncio.wait((playing, stopping), timeout=scenario.settle_seconds, return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            playing.result()
    finally:
        playing.cancel()
        stopping.cancel()
        await asyncio.gather(playing, stopping, return_exceptions=True)


async def watch(scenario: Scenario, ledger: Ledger, statuses: Sequence[Address], display: Display) -> None:
    """Show the progress and record samples of the gateways' status until cancelled."""
    begin = time.monotonic()
    while True:
        display.progress(ledger.counts, time.monotonic() - begin, scenario.seconds)
        values = await asyncio.to_thread(_request_all, statuses)
        if values:
            ledger.sample(values)
        await asyncio.sleep(SAMPLE_SECONDS)


async def note_before(ledger: Ledger, statuses: Sequence[Address]) -> None:
    """Record what the gateways had counted before the run, where their status is readable."""
    values = await asyncio.to_thread(_request_all, statuses)
    if "accepted" in values:
        ledger.sample({f"{name}_before": values[name] for name in ("accepted", "duplicates")})


def _request_all(addresses: Sequence[Address]) -> Counter[str]:
    values: Counter[str] = Counter()
    for host, port in addresses:
        try:
            with urllib.request.urlopen(f"http://{host}:{port}/api/v1/status", timeout=STATUS_SECONDS_MAX) as answer:
                status = json.load(answer)
        except (OSError, ValueError):
            continue  # unreachable, or not permitted: no sample of this gateway
        values.update({**status["events"], **{name: status[name] for name in ("accepted", "duplicates")}})
    return values


class Reports:
    """Sensors report until no fault needs them any longer, and pause while a card is being replaced."""

    def __init__(self) -> None:
        self.enabled = asyncio.Event()
        self.enabled.set()
        self.suffice = asyncio.Event()
        """Set once every fault has been played, with reports after it where it needs some."""
        self._pausing = asyncio.Lock()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Hold new reports within the block, one block after the other; transmissions of earlier ones continue.

        Those that fell due follow at once.
        """
        async with self._pausing:
            self.enabled.clear()
            try:
                yield
            finally:
                self.enabled.set()


def stop_on_signals(display: Display) -> asyncio.Event:
    """Return an event that the first Ctrl-C sets; the second one and SIGTERM cancel the current task.

    It requests the end of a run, without new events and without waiting for outstanding ones.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def interrupted() -> None:
        if stop.is_set():
            task.cancel()
        else:
            display.fact("interrupted: judging the run so far; press again to end at once")
            stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    return stop
