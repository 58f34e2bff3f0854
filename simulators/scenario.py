"""A scenario: which sensors, over which link, through which faults. One TOML file; docs/field-test.md explains it.

Moments count from the first report, in true seconds. What a sensor waits by itself is divided by `speed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from simulators import strict_toml
from simulators.payloads import KnownBy, PayloadFormat
from simulators.strict_toml import TomlError


class SensorKind(StrEnum):
    """What kind of sensors a fleet is made of."""

    COAP = "coap"
    """Confirmable requests, one event each, with RFC 7252's backoff, then resends by the application."""
    STORE_AND_FORWARD = "mote"
    """Stores and forwards: sends packs, and cuts them anew after a lost ACK."""
    NON_CONFIRMABLE = "chirper"
    """Non-confirmable requests, each said a few times, whoever hears them."""
    SLEEPY = "sleepy"
    """Restarts after each event: Message ID and Token begin at the same value every time."""
    HTTP = "http"
    """Relays that post events of several devices over HTTP."""
    ZIGBEE = "zigbee"
    """A Zigbee2MQTT house: real models, published to an MQTT broker."""
    ZIGBEE2MQTT = "zigbee2mqtt"
    """Thermometers of the real Zigbee2MQTT, without a radio; only with --local, and where there is npm."""


class Bug(StrEnum):
    """What a firmware may do wrong."""

    COUNTER_RESTARTS = "counter-restarts"
    """The counter of ids begins again now and then, without a boot count."""
    RESTAMPED_RESENDS = "restamped-resends"
    """A resend is stamped with the time of its sending."""
    IDS_REPEATED = "ids-repeated"
    """Now and then an id is given to two readings that differ."""
    NAN_IN_PACK = "nan-in-pack"
    """Now and then a probe says NaN beside good readings."""


class FaultTarget(StrEnum):
    """What a fault hits, when the run starts all parts itself."""

    AGENT = "agent"
    AGENT_2 = "agent-2"
    JOB = "job"
    KAFKA = "kafka"


class FaultKind(StrEnum):
    """What happens to a part."""

    KILL = "kill"
    """SIGKILL; started again after `seconds`."""
    FREEZE = "freeze"
    """SIGSTOP, and SIGCONT after `seconds`."""
    RESTART = "restart"
    """SIGTERM; started again after `seconds`."""
    DOWN = "down"
    """Stopped from `at` on, for `seconds`."""
    DISK_FULL = "disk-full"
    """No file of the agent's can grow, for `seconds`."""
    CLOCK = "clock"
    """The agent's wall clock jumps by `by_seconds`; by 0 it is right again."""
    BACKUP = "backup"
    """The card is copied: agent stopped, copied, started."""
    RESTORE = "restore"
    """The card is replaced by the copy of `backup`: an older state."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Sensors of one sort."""

    sort: SensorKind
    sensors: int
    every_seconds: float
    """Mean time between two events of a sensor."""
    known_by: tuple[KnownBy, ...] = (KnownBy.ID, KnownBy.TIME)
    forms: tuple[PayloadFormat, ...] = (
        PayloadFormat.JSON,
        PayloadFormat.CBOR,
        PayloadFormat.SENML_JSON,
        PayloadFormat.SENML_CBOR,
    )
    boot: bool = False
    """Whether events carry a boot count; a sleepy sensor's grows by one each time."""
    tries: int = 100
    """How often the application sends an event anew before it gives up."""
    repeats: int = 3
    """How often a chirper says an event."""
    pack_max: int = 20
    """Most events in one request of a mote or a relay."""
    block_bytes: int = 0
    """Bodies larger than this go block-wise (Block1): 16, 32, 64 … 1024; 0: in one piece."""
    backlog_seconds: float = 0.0
    """A mote begins with what it has stored for so long."""
    clock_offset_seconds: float = 0.0
    """How wrong the sensors' clocks are."""
    bugs: tuple[Bug, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError where values contradict one another."""
        if self.sensors < 1 or self.every_seconds <= 0 or self.tries < 1 or self.pack_max < 1:
            raise ValueError("sensors, every_seconds, tries and pack_max: expected more than 0")
        if self.block_bytes not in (0, 16, 32, 64, 128, 256, 512, 1024):
            raise ValueError(
                f"block_bytes is {self.block_bytes}; expected 0 or a power of 2 from 16 to 1024 (RFC 7959)"
            )
        if not self.known_by or not self.forms:
            raise ValueError("known_by and forms: expected at least one")
        if self.sort in (SensorKind.STORE_AND_FORWARD, SensorKind.HTTP) and KnownBy.NEITHER in self.known_by:
            raise ValueError(f"a {self.sort} needs an id or a time for its events: they change their requests")


@dataclass(frozen=True, slots=True)
class LinkOutage:
    """The link is dead for a while."""

    at: float
    seconds: float
    answers_only: bool = False
    """Requests go through, answers do not."""


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """What happens on the air; rates from 0 to 1."""

    request_loss: float = 0.0
    answer_loss: float = 0.0
    burst_loss: float = 0.0
    """Loss within a burst (Gilbert-Elliott's bad state), both ways."""
    burst_begins: float = 0.02
    """Chance, at each datagram, that a burst begins."""
    burst_ends: float = 0.2
    """Chance, at each datagram, that it ends."""
    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    reordered: float = 0.0
    """Share of datagrams that are held back, so that later ones overtake them."""
    duplicated: float = 0.0
    corrupted: float = 0.0
    """Share of datagrams that arrive cut short or as noise."""
    frame_bytes: int = 0
    """6LoWPAN: larger datagrams travel in frames of so many bytes, and one lost frame loses all; 0: in one piece."""
    datagram_bytes_max: int = 0
    """Larger datagrams are dropped (1280 is the MTU of IPv6); 0: no limit."""
    bits_per_second: int = 0
    """Airtime that all sensors share (250000 in 802.15.4); 0: no limit."""
    duty_cycle: float = 1.0
    """Share of the airtime that may be used."""
    resets: float = 0.0
    """TCP: chance, at each piece of an answer, that the connection is reset before it."""
    outages: tuple[LinkOutage, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError where a rate is none."""
        rates = ("request_loss", "answer_loss", "burst_loss", "burst_begins", "burst_ends", "reordered", "duplicated")
        for name in (*rates, "corrupted", "resets"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a rate from 0 to 1")
        if not 0 < self.duty_cycle <= 1:
            raise ValueError(f"duty_cycle is {self.duty_cycle}; expected more than 0, and 1 at most")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens to one part."""

    at: float
    part: FaultTarget
    what: FaultKind
    seconds: float = 1.0
    by_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError where the part cannot suffer this."""
        of_agents = (FaultKind.DISK_FULL, FaultKind.CLOCK, FaultKind.BACKUP, FaultKind.RESTORE)
        if self.what in of_agents and self.part not in (FaultTarget.AGENT, FaultTarget.AGENT_2):
            raise ValueError(f"{self.what} happens to an agent, not to {self.part}")


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """The gateway, when the run starts it itself; a remote one is as it is."""

    count: int = 1
    """With 2, each sensor of CoAP is heard by both."""
    clock: str = "trusted"
    clock_offset_seconds: float = 0.0
    store_max_bytes: str = "1GiB"

    def __post_init__(self) -> None:
        """Raise ValueError where there are too many."""
        if self.count not in (1, 2):
            raise ValueError(f"count is {self.count}; expected 1 or 2")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One field test."""

    name: str
    shows: str
    """What it shows, in a sentence."""
    seconds: float
    """How long sensors report."""
    fleets: tuple[FleetPlan, ...]
    speed: float = 10.0
    """By how much the sensors' own waiting times are shortened."""
    settle_seconds: float = 120.0
    """How long sensors may go on afterwards with what they have not brought home."""
    link: LinkPlan = LinkPlan()
    gateway: GatewayPlan = GatewayPlan()
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError where there is nobody to say anything."""
        if not self.fleets:
            raise ValueError("fleets: expected at least one of [[fleets]]")
        if self.seconds <= 0 or self.speed <= 0:
            raise ValueError("seconds and speed: expected more than 0")


def shipped() -> dict[str, Scenario]:
    """Return the scenarios that come along, by name."""
    return {path.stem: strict_toml.load(path, Scenario) for path in _shipped_paths()}


def find(name_or_path: str) -> Scenario:
    """Read the scenario of a file, or one that comes along by its name."""
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.exists():
        return strict_toml.load(path, Scenario)
    names = {path.stem: path for path in _shipped_paths()}
    if name_or_path not in names:
        raise TomlError(f"no file and no scenario {name_or_path!r}; there are: {', '.join(names)}")
    return strict_toml.load(names[name_or_path], Scenario)


def _shipped_paths() -> list[Path]:
    folder = Path(str(files("simulators.scenarios")))
    return sorted(folder.glob("*.toml"))
