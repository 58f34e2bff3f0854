"""The agent as a process: opens the store, the servers and the forwarder, runs until a signal, finishes accepted work.

The composition root: only this module selects the adapters.
"""

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pkgutil import resolve_name
from random import Random
from typing import Any

from agent import release, runtime
from agent.clock import Clock, SystemClock
from agent.config.lanes import DEFAULT_LANE, DEFAULT_PRIORITY, Lane
from agent.config.settings import Settings
from agent.config.ways import WayIn, enabled, limits
from agent.forward.forwarder import Forwarder
from agent.forward.kafka.uplink import open_uplink
from agent.forward.modes.lanes import ForwardedLane, Rank
from agent.forward.receipts.poller import ReceiptPoller
from agent.forward.receipts.round import SharedRound
from agent.identity.changed import basis, note_basis
from agent.opening import Opened, Opening
from agent.pipeline import Pipeline
from agent.renewal import renew
from agent.store.errors import DamagedStoreError, DiskFullError
from agent.store.flush_socket import FlushSocket
from agent.store.lanes import LaneStores, lane_stores
from agent.store.write.writer import do_nothing
from agent.systemd.notifier import Notifier, supervise, wait_for_space
from agent.systemd.sockets import Sockets
from agent.telemetry.counters import Transport
from agent.telemetry.links import Links
from agent.telemetry.process_state import ProcessState, RecentErrors

log = logging.getLogger(__name__)


async def serve(settings: Settings) -> None:
    """Run the agent until SIGTERM or SIGINT; raise any other cause of its end."""
    log.info("agent=starting version=%s form=%s", release.version(), release.form())
    runtime.return_freed_memory()
    stop, sockets = _stop_on_signals(), Sockets()
    while await _serve_until_damaged(settings, stop, sockets):
        Notifier().busy("salvages its store")  # which takes longer than the watchdog's interval
        log.warning("agent=restarting reason=%r", "the store is damaged; it is salvaged when it is opened again")
    log.info("agent=stopped")


async def _serve_until_damaged(settings: Settings, stop: asyncio.Event, sockets: Sockets) -> bool:
    """Run the agent; return whether it ended because of damage in the store."""
    damaged = False
    try:
        await _serve(settings, stop, sockets)
    except* DamagedStoreError:
        damaged = True
    return damaged


async def _serve(settings: Settings, stop: asyncio.Event, sockets: Sockets) -> None:
    clock = SystemClock(trusted=settings.gateway.clock == "trusted")
    async with AsyncExitStack() as stack:
        store = await _open_store(settings, clock, stop, sockets, stack)
        if store is not None:
            now = basis(settings.identity, settings.mqtt, settings.mappings)
            await asyncio.to_thread(note_basis, now, store.outboxes[DEFAULT_LANE])
            ways = enabled(settings)
            pipeline = Pipeline(
                *(settings.identity, clock, store.intake, settings.devices, limits(ways)),
                lambda: (counts := store.counts()).new + counts.forwarded,
            )
            await _run(settings, clock, store, pipeline, ways, stop, sockets)


async def _open_store(
    settings: Settings, clock: Clock, stop: asyncio.Event, sockets: Sockets, stack: AsyncExitStack
) -> LaneStores | None:
    """Open the stores once there is space, with closed ports until then (decision 30); return None if `stop` is set."""
    while not stop.is_set():
        try:
            return await stack.enter_async_context(lane_stores(settings, clock))
        except DiskFullError as error:
            sockets.release()
            await wait_for_space(error, settings.gateway.state_dir, stop)
    return None


async def _run(
    settings: Settings,
    clock: Clock,
    store: LaneStores,
    pipeline: Pipeline,
    ways: Mapping[str, WayIn],
    stop: asyncio.Event,
    sockets: Sockets,
) -> None:
    """Start up, run and shut down: the servers close first, so that the forwarder receives all accepted events."""
    stop_forwarding, recent_errors, told = threading.Event(), RecentErrors(), sockets.notifier
    logging.getLogger().addHandler(recent_errors)
    links = {lane: Links(clock, "" if lane == DEFAULT_LANE else lane) for lane in store.by_lane}
    lanes = _forwarded_lanes(settings, clock, store)
    state = _process_state(recent_errors, links, lanes)
    async with asyncio.TaskGroup() as tasks:
        for lane, outbox in store.outboxes.items():
            shared = SharedRound(settings.receipts.poll_seconds)
            forwarder = Forwarder(
                *(settings.kafka, settings.gateway.id, outbox, clock, links[lane], Random()),
                shared=shared if settings.receipts.enabled else None,
                lane=lanes[lane],
            )
            polled = (settings.kafka, settings.receipts, settings.gateway.id, outbox, links[lane], Random())
            receipts = ReceiptPoller(*polled, forwarder.hours, shared=shared)
            tasks.create_task(_thread(forwarder.run, stop_forwarding), name=f"forwarder of lane {lane}")
            tasks.create_task(_thread(receipts.run, stop_forwarding), name=f"receipts of lane {lane}")
        transports: dict[str, Transport] = {}
        opening = Opening(
            *("", None, settings, clock, pipeline.receive, pipeline.record, pipeline.refuse, pipeline.protect),
            *(pipeline.trusted_time, links[DEFAULT_LANE], store.outboxes[DEFAULT_LANE]),
            lambda: resolve_name("agent.http.sources:Sources")(settings, store, pipeline, clock, state, transports),
            sockets.listen,
        )
        try:
            async with AsyncExitStack() as stack:
                opened = await _open_ways(ways, opening, sockets, stack)
                for name, one in opened.items():
                    if one.transport is not None:
                        transports[name] = one.transport
                        store.add_transport(one.transport.duplicates, one.forget_answers or do_nothing)
                    if one.run is not None:
                        await stack.enter_async_context(_running(tasks.create_task(one.run(stop), name=name)))
                addresses = {name: one.address for name, one in opened.items() if one.address}
                runtime.tune()
                flushes = FlushSocket(settings.gateway.state_dir, store.flush, pipeline.refusals.document)
                await stack.enter_async_context(flushes)
                pairs = "".join(f" {name}=%s" for name in addresses)
                log.info(f"agent=ready gateway=%s{pairs}", settings.gateway.id, *addresses.values())
                places = " ".join(map("=".join, addresses.items()))
                supervising = tasks.create_task(supervise(told, store, places), name="supervision")
                renewing = tasks.create_task(renew([one.renewal for one in opened.values()], stop), name="renewal")
                await _until_stopped(stop, store)
                supervising.cancel()
                renewing.cancel()
                told.tell("STOPPING=1")
                log.info("agent=stopping")
        finally:
            stop_forwarding.set()
            logging.getLogger().removeHandler(recent_errors)


def _process_state(
    errors: RecentErrors, links: Mapping[str, Links], lanes: Mapping[str, ForwardedLane]
) -> ProcessState:
    priorities = {lane: one.rank.priority for lane, one in lanes.items() if one.rank is not None}
    uplink = lanes[DEFAULT_LANE].uplink
    return ProcessState(errors, links, None if uplink is None else uplink.state, priorities)


def _forwarded_lanes(settings: Settings, clock: Clock, store: LaneStores) -> dict[str, ForwardedLane]:
    """Return the lanes for their forwarders; one that is no longer configured comes after all others."""
    uplink = open_uplink(settings.kafka, clock)
    if len(store.by_lane) == 1:
        return {DEFAULT_LANE: ForwardedLane(uplink=uplink, gather_seconds=settings.kafka.gather_seconds)}
    asked: dict[Rank, int] = {}
    configured = {lane.name: lane for lane in settings.forward.lanes}
    configured[DEFAULT_LANE] = Lane("", DEFAULT_PRIORITY, gather_seconds=settings.kafka.gather_seconds)
    last = min(lane.priority for lane in configured.values()) - 1
    lanes = {name: configured.get(name, Lane(name, last)) for name in store.by_lane}
    return {
        name: ForwardedLane(
            *(lane.name, Rank(clock, lane.priority, asked), uplink, lane.time_to_live_seconds, lane.gather_seconds)
        )
        for name, lane in lanes.items()
    }


async def _open_ways(
    ways: Mapping[str, WayIn], opening: Opening, sockets: Sockets, stack: AsyncExitStack
) -> dict[str, Opened]:
    """Open the ways in, once all of them have read who may send; leaving the stack closes them."""
    sections = opening.every.sources
    opens = {
        name: resolve_name(way.opens)(replace(opening, name=name, settings=sections.get(name)))
        for name, way in ways.items()
    }
    opened = {name: await stack.enter_async_context(one) for name, one in opens.items()}
    sockets.check()
    return opened


@asynccontextmanager
async def _running(run: asyncio.Task[None]) -> AsyncIterator[None]:
    """Wait at the end until a way in has finished; it is cancelled where an error ends the agent."""
    try:
        yield
    except BaseException:
        run.cancel()
        raise
    finally:
        await asyncio.wait([run])


async def _until_stopped(stop: asyncio.Event, store: LaneStores) -> None:
    """Wait for the signal; raise the error that ended a store's writer."""
    waiting = asyncio.ensure_future(stop.wait())
    ends: list[asyncio.Future[Any]] = [waiting, *store.failures]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for failed in store.failures:
        if failed.done():
            failed.result()


async def _thread(run: Callable[[threading.Event], None], stop: threading.Event) -> None:
    """Run blocking work in a thread of its own; on cancellation set `stop` and wait for its end.

    The loop's own executor has few threads, which lanes would occupy for good.
    """
    executor = ThreadPoolExecutor(1)
    work = asyncio.get_running_loop().run_in_executor(executor, run, stop)
    executor.shutdown(wait=False)
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await work
        raise


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
