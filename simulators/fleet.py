"""All sensors of a run in one process, all from one seed."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from simulators.payloads import SENSORS_MAX, Voice, device_name, nature
from simulators.scenario import Bug, FleetPlan, Sort
from simulators.sensors.field import Field
from simulators.sensors.non_confirmable import Chirper
from simulators.sensors.relay import Relay
from simulators.sensors.reporter import Reporter
from simulators.sensors.store_and_forward import Mote
from simulators.sensors.zigbee2mqtt import Zigbee2MqttWitness
from simulators.sensors.zigbee_network import House

RELAYED = 5
"""Devices behind one HTTP relay."""
FILES_BESIDE = 200
COUNTER_RESTARTS_EVERY = 15
ID_REPEATED_EVERY = 7

CoapSensor = Reporter | Mote | Chirper
_COAP: dict[Sort, type[Reporter] | type[Mote] | type[Chirper]] = {
    Sort.COAP: Reporter,
    Sort.SLEEPY: Reporter,
    Sort.MOTE: Mote,
    Sort.CHIRPER: Chirper,
}


class FleetError(Exception):
    """So many sensors cannot run here."""


async def play(plans: Sequence[FleetPlan], field: Field) -> None:
    """Have all sensors report from now on; return when each has come to an end with all that it had to say."""
    sockets = sum(plan.sensors for plan in plans if plan.sort in _COAP)
    relayed = sum(RELAYED * plan.sensors for plan in plans if plan.sort is Sort.HTTP)
    if sockets + relayed > SENSORS_MAX:
        raise FleetError(f"{sockets + relayed:,} devices; one run has addresses for {SENSORS_MAX:,}")
    allow_files(sockets)
    index = 0
    lives: list[Callable[[], Awaitable[None]]] = []
    opened: list[CoapSensor] = []
    try:
        for number, plan in enumerate(plans):
            if plan.sort is Sort.ZIGBEE:
                lives.append(House(field, plan, number).live)
                continue
            if plan.sort is Sort.ZIGBEE2MQTT:
                lives.append(Zigbee2MqttWitness(field, plan, number).live)
                continue
            for place in range(plan.sensors):
                if plan.sort is Sort.HTTP:
                    lives.append(_relay(field, plan, index, place))
                    index += RELAYED
                else:
                    sensor = _coap_sensor(field, plan, index, place)
                    opened.append(sensor)
                    await _open(sensor, field, index)
                    lives.append(_life(sensor, field, index))
                    index += 1
        field.start()
        async with asyncio.TaskGroup() as tasks:
            for number, live in enumerate(lives):
                tasks.create_task(_awaited(live), name=f"sensor {number}")
    finally:
        for sensor in opened:
            sensor.endpoint.close()


def allow_files(sockets: int) -> None:
    """Raise this process's limit of open files where that many sockets need it; links need as many again."""
    needed = 2 * sockets + FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed and soft != resource.RLIM_INFINITY:
        reachable = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        if reachable < sockets + FILES_BESIDE:
            raise FleetError(f"{sockets} sensors need {needed} open files, and {hard} are allowed: ulimit -n {needed}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))


def _coap_sensor(field: Field, plan: FleetPlan, index: int, place: int) -> CoapSensor:
    return _COAP[plan.sort](field, _voice(field, plan, index, place), plan, field.random(f"sensor {index} waits"))


def _relay(field: Field, plan: FleetPlan, index: int, place: int) -> Callable[[], Awaitable[None]]:
    voices = [_voice(field, plan, index + of, place) for of in range(RELAYED)]
    relay = Relay(field, voices, plan, field.random(f"sensor {index} waits"))
    return lambda: relay.live(field.random(f"sensor {index} moments"))


def _voice(field: Field, plan: FleetPlan, index: int, place: int) -> Voice:
    born = nature(place, plan.known_by, plan.forms)
    named = replace(
        born,
        device=device_name(index, field.run),
        talkative=plan.block_bytes > 0,
        counter_restarts_every=COUNTER_RESTARTS_EVERY if Bug.COUNTER_RESTARTS in plan.bugs else 0,
        id_repeated_every=ID_REPEATED_EVERY if Bug.IDS_REPEATED in plan.bugs else 0,
    )
    return Voice(named, field.random(f"sensor {index} says"))


async def _open(sensor: CoapSensor, field: Field, index: int) -> None:
    assert field.ways.coap is not None
    field.ways.introduce(await sensor.endpoint.open(field.ways.coap), index)


def _life(sensor: CoapSensor, field: Field, index: int) -> Callable[[], Awaitable[None]]:
    return lambda: sensor.live(field.random(f"sensor {index} moments"))


async def _awaited(live: Callable[[], Awaitable[None]]) -> None:
    await live()
