"""A scenario: sensors, link and faults, in one TOML file that docs/field-test.md describes.

Moments are real seconds since the first report. The sensors' own waiting times are divided by `speed`.
"""

from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from simulators import strict_toml
from simulators.payloads import KnownBy, PayloadFormat
from simulators.strict_toml import TomlError


class SensorKind(StrEnum):
    """The kind of sensor in a fleet."""

    COAP = "coap"
    """Confirmable requests with one event each, retransmitted as in RFC 7252, then resent by the application."""
    STORE_AND_FORWARD = "store-and-forward"
    """Store and forward: sends packs, cut differently after a lost ACK."""
    NON_CONFIRMABLE = "non-confirmable"
    """Non-confirmable requests, each repeated a few times."""
    SLEEPY = "sleepy"
    """Restarts after each event with the same Message ID and Token."""
    HTTP = "http"
    """Relays that post the events of several devices over HTTP."""
    ZIGBEE = "zigbee"
    """A simulated Zigbee network: devices of real models, published to an MQTT broker."""
    MAPPED = "mapped"
    """Devices of other products, published to an MQTT broker in their own formats, which mappings read."""

    @property
    def protocol(self) -> str:
        """The scheme of its target."""
        return _PROTOCOLS.get(self, "coap")


_PROTOCOLS = {"http": "http", "zigbee": "mqtt", "mapped": "mqtt"}


class Bug(StrEnum):
    """A firmware bug."""

    COUNTER_RESTARTS = "counter-restarts"
    """The id counter sometimes starts again, without a boot count."""
    RESTAMPED_RESENDS = "restamped-resends"
    """A resend carries the time of its transmission."""
    IDS_REPEATED = "ids-repeated"
    """Sometimes two different readings have the same id."""
    NAN_IN_PACK = "nan-in-pack"
    """Sometimes a pack contains a NaN beside good readings."""


class FaultTarget(StrEnum):
    """The service that a fault affects, where the run starts the services itself."""

    AGENT = "agent"
    AGENT_2 = "agent-2"
    JOB = "job"
    KAFKA = "kafka"


class FaultKind(StrEnum):
    """The kind of a fault."""

    KILL = "kill"
    """SIGKILL; started again after `seconds`."""
    FREEZE = "freeze"
    """SIGSTOP, and SIGCONT after `seconds`."""
    RESTART = "restart"
    """SIGTERM; started again after `seconds`."""
    DOWN = "down"
    """Stopped at `at` for `seconds`."""
    DISK_FULL = "disk-full"
    """No file of the agent can grow for `seconds`."""
    CLOCK = "clock"
    """The agent's wall clock is off by `by_seconds` from now on; 0 corrects it."""
    BACKUP = "backup"
    """The agent is stopped, its card copied, and the agent started."""
    RESTORE = "restore"
    """The card is replaced by the older copy of `backup`."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Sensors of one kind."""

    kind: SensorKind
    sensors: int
    every_seconds: float
    """Mean time between two events of a sensor."""
    known_by: tuple[KnownBy, ...] = (KnownBy.ID, KnownBy.TIME)
    formats: tuple[PayloadFormat, ...] = tuple(PayloadFormat)
    boot: bool = False
    """Whether events carry a boot count; a sleepy sensor's grows by one each time."""
    tries: int = 100
    """How often the application sends an event before it stops trying."""
    repeats: int = 3
    """How often a non-confirmable sensor sends an event."""
    pack_max: int = 20
    """Largest number of events in one request of a store-and-forward sensor or a relay."""
    block_bytes: int = 0
    """Larger bodies are sent block-wise (Block1) in this size: 16, 32, 64 … 1024; 0: in one piece."""
    backlog_seconds: float = 0.0
    """Length of the backlog with which a store-and-forward sensor starts."""
    clock_offset_seconds: float = 0.0
    """Offset of the sensors' clocks."""
    bugs: tuple[Bug, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError where values contradict one another."""
        if self.sensors < 1 or self.every_seconds <= 0 or self.tries < 1 or self.pack_max < 1:
            raise ValueError("sensors, every_seconds, tries and pack_max: expected more than 0")
        if self.block_bytes not in (0, 16, 32, 64, 128, 256, 512, 1024):
            raise ValueError(
                f"block_bytes is {self.block_bytes}; expected 0 or a power of 2 from 16 to 1024 (RFC 7959)"
            )
        if not self.known_by or not self.formats:
            raise ValueError("known_by and formats: expected at least one")
        if self.kind in (SensorKind.STORE_AND_FORWARD, SensorKind.HTTP) and KnownBy.NEITHER in self.known_by:
            raise ValueError(f"{self.kind} sensors need an id or a time for their events: they change their requests")


@dataclass(frozen=True, slots=True)
class LinkOutage:
    """An outage of the link."""

    at: float
    seconds: float
    answers_only: bool = False
    """Whether only answers are lost."""


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """The faults of the link; rates from 0 to 1."""

    request_loss: float = 0.0
    answer_loss: float = 0.0
    burst_loss: float = 0.0
    """Loss within a burst (the bad state of the Gilbert-Elliott model), in both directions."""
    burst_begins: float = 0.02
    """Probability, at each datagram, that a burst begins."""
    burst_ends: float = 0.2
    """Probability, at each datagram, that a burst ends."""
    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    reordered: float = 0.0
    """Share of datagrams that are delayed so that later ones overtake them."""
    duplicated: float = 0.0
    corrupted: float = 0.0
    """Share of datagrams that arrive truncated or as noise."""
    frame_bytes: int = 0
    """6LoWPAN: larger datagrams are split into frames of this size, and one lost frame loses all; 0: no frames."""
    datagram_bytes_max: int = 0
    """Larger datagrams are dropped (1280 is the MTU of IPv6); 0: no limit."""
    bits_per_second: int = 0
    """Bit rate that all sensors share (250000 in 802.15.4); 0: no limit."""
    duty_cycle: float = 1.0
    """Share of the airtime that may be used."""
    resets: float = 0.0
    """TCP: probability, at each piece of an answer, that the connection is reset before it."""
    outages: tuple[LinkOutage, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError where a rate is out of range."""
        rates = ("request_loss", "answer_loss", "burst_loss", "burst_begins", "burst_ends", "reordered", "duplicated")
        for name in (*rates, "corrupted", "resets"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a rate from 0 to 1")
        if not 0 < self.duty_cycle <= 1:
            raise ValueError(f"duty_cycle is {self.duty_cycle}; expected more than 0, and 1 at most")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in one service."""

    at: float
    target: FaultTarget
    kind: FaultKind
    seconds: float = 1.0
    by_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError where the kind does not apply to the service."""
        of_agents = (FaultKind.DISK_FULL, FaultKind.CLOCK, FaultKind.BACKUP, FaultKind.RESTORE)
        if self.kind in of_agents and self.target not in (FaultTarget.AGENT, FaultTarget.AGENT_2):
            raise ValueError(f"{self.kind} happens to an agent, not to {self.target}")


@dataclass(frozen=True, slots=True)
class LanePlan:
    """A lane of the gateway, for the devices of a pattern."""

    name: str
    priority: int
    device: str


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """The gateway of a local run."""

    count: int = 1
    """With 2, both receive the requests of each CoAP sensor."""
    clock: str = "trusted"
    clock_offset_seconds: float = 0.0
    store_max_bytes: str = "1GiB"
    bytes_per_second_max: str = ""
    """The cap of the uplink to Kafka; empty for none."""
    lanes: tuple[LanePlan, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError where the count is not 1 or 2."""
        if self.count not in (1, 2):
            raise ValueError(f"count is {self.count}; expected 1 or 2")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One field test."""

    name: str
    description: str
    """The purpose, in one sentence."""
    seconds: float
    """How long sensors report; they continue until the last fault but a restore has been injected."""
    fleets: tuple[FleetPlan, ...]
    speed: float = 10.0
    """Divisor of the sensors' own waiting times."""
    settle_seconds: float = 120.0
    """How long sensors may continue afterwards with events that are not acked yet."""
    link: LinkPlan = LinkPlan()
    gateway: GatewayPlan = GatewayPlan()
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError without a fleet or with an invalid duration."""
        if not self.fleets:
            raise ValueError("fleets: expected at least one of [[fleets]]")
        if self.seconds <= 0 or self.speed <= 0:
            raise ValueError("seconds and speed: expected more than 0")

    @property
    def targets(self) -> frozenset[str]:
        """The schemes of the targets that its sensors need in the field."""
        return frozenset(plan.kind.protocol for plan in self.fleets)


def shipped() -> dict[str, Scenario]:
    """Return the included scenarios by name."""
    return {path.stem: strict_toml.load(path, Scenario) for path in _shipped_paths()}


def find(name_or_path: str) -> Scenario:
    """Return the scenario of a file, or an included one by its name."""
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
