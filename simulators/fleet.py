"""Runs all sensors of a run in one process, from one seed."""

import asyncio
import resource
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial

from simulators.errors import SimulatorError
from simulators.payloads import SENSORS_MAX, PayloadGenerator, device_name, device_profile
from simulators.scenario import Bug, FleetPlan, SensorKind
from simulators.sensors.field import Field
from simulators.sensors.mapped_network import MappedNetwork
from simulators.sensors.relay import Relay
from simulators.sensors.reporter import CoapSensor, NonConfirmableSensor, Reporter
from simulators.sensors.store_and_forward import StoreAndForwardSensor
from simulators.sensors.zigbee_network import ZigbeeNetwork

RELAYED = 5
"""Number of devices behind one HTTP relay."""
FILES_BESIDE = 200
COUNTER_RESTARTS_EVERY = 15
ID_REPEATED_EVERY = 7

_COAP: dict[SensorKind, type[CoapSensor]] = {
    SensorKind.COAP: Reporter,
    SensorKind.SLEEPY: Reporter,
    SensorKind.STORE_AND_FORWARD: StoreAndForwardSensor,
    SensorKind.NON_CONFIRMABLE: NonConfirmableSensor,
}
NETWORKS = {SensorKind.ZIGBEE: ZigbeeNetwork, SensorKind.MAPPED: MappedNetwork}
Run = Callable[[], Coroutine[None, None, None]]
"""Runs one sensor to its end."""


class FleetError(SimulatorError):
    """The machine cannot run this many sensors."""


async def play(plans: Sequence[FleetPlan], field: Field) -> None:
    """Run all sensors; return when each has finished with all of its events."""
    sockets = sum(plan.sensors for plan in plans if plan.kind in _COAP)
    relayed = sum(RELAYED * plan.sensors for plan in plans if plan.kind is SensorKind.HTTP)
    if sockets + relayed > SENSORS_MAX:
        raise FleetError(f"{sockets + relayed:,} devices: one run has addresses for {SENSORS_MAX:,}")
    allow_files(sockets)
    index = 0
    runs: list[Run] = []
    opened: list[CoapSensor] = []
    try:
        for number, plan in enumerate(plans):
            if plan.kind in NETWORKS:
                runs.append(NETWORKS[plan.kind](field, plan, number).run)
                continue
            for place in range(plan.sensors):
                waits, moments = (field.random(f"sensor {index} {what}") for what in ("waits", "moments"))
                if plan.kind is SensorKind.HTTP:
                    generators = [_generator(field, plan, index + of, place) for of in range(RELAYED)]
                    runs.append(partial(Relay(field, generators, plan, waits).run, moments))
                    index += RELAYED
                else:
                    sensor = _COAP[plan.kind](field, _generator(field, plan, index, place), plan, waits)
                    opened.append(sensor)
                    assert field.targets.coap is not None
                    field.targets.register_peer(await sensor.endpoint.open(field.targets.coap), index)
                    runs.append(partial(sensor.run, moments))
                    index += 1
        field.start()
        async with asyncio.TaskGroup() as tasks:
            for number, run in enumerate(runs):
                tasks.create_task(run(), name=f"sensor {number}")
    finally:
        for sensor in opened:
            sensor.endpoint.close()


def allow_files(sockets: int) -> None:
    """Raise the process's limit of open files as needed: one socket per sensor, and one more in the link."""
    needed = 2 * sockets + FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed and soft != resource.RLIM_INFINITY:
        reachable = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        if reachable < sockets + FILES_BESIDE:
            raise FleetError(f"{sockets} sensors need {needed} open files, and {hard} are allowed: ulimit -n {needed}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))


def _generator(field: Field, plan: FleetPlan, index: int, place: int) -> PayloadGenerator:
    born = device_profile(place, plan.known_by, plan.formats)
    named = replace(
        born,
        device=device_name(index, field.run),
        large_payloads=plan.block_bytes > 0,
        counter_restarts_every=COUNTER_RESTARTS_EVERY if Bug.COUNTER_RESTARTS in plan.bugs else 0,
        id_repeated_every=ID_REPEATED_EVERY if Bug.IDS_REPEATED in plan.bugs else 0,
    )
    return PayloadGenerator(named, field.random(f"sensor {index} says"))
