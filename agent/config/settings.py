"""The agent's settings: one frozen dataclass for each section of the configuration file.

Each field's metadata has its reader, its meaning, and its key where that is not the field's name; `load.py` reads files
by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.config import readers
from agent.config import subscriptions as topics
from agent.config.identity_rules import IdentityRule, read_rules
from agent.config.lanes import Lane, read_lanes
from agent.config.mistakes import SettingErrors
from contract.fields import RETENTION_SECONDS

if TYPE_CHECKING:
    from agent.mappings.mapping import EventMapping

DAY_SECONDS = 86_400.0


def option(read: readers.Read, help_: str, *, key: str = "", **default: Any) -> Any:
    """Declare a setting: its reader, its meaning, its default (`default=` or `default_factory=`).

    Its value is one of JSON, a path, an enum, a dataclass, or has one text: the views show it, unless `readers.secret`
    reads it.
    """
    return field(metadata={"read": read, "help": help_, "key": key}, **default)


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Section [gateway]."""

    id: str = option(readers.name, "name of this gateway; unique among all that write to one topic")
    state_dir: Path = option(readers.path, "folder of the event store", default=Path("/var/lib/oncegate"))
    clock: str = option(
        readers.choice("kernel", "trusted"),
        "kernel: trusted while the kernel reports the clock as synchronised; trusted: it is kept correct otherwise",
        default="kernel",
    )


@dataclass(frozen=True, slots=True)
class CoapSettings:
    """Section [coap]."""

    enabled: bool = option(readers.boolean, "accept events over CoAP", default=True)
    bind: str = option(readers.listen_address, "address and UDP port; [::] accepts IPv6 and IPv4", default="[::]:5683")
    max_body_bytes: int = option(readers.positive_size, "largest body, block-wise uploads included", default=65_536)


@dataclass(frozen=True, slots=True)
class OscoreSettings:
    """Section [coap.oscore]."""

    credentials_dir: Path | None = option(
        readers.path, "folder with a file for each device that uses OSCORE: docs/oscore.md", default=None
    )
    required: bool = option(readers.boolean, "refuse every request without OSCORE", default=False)
    freshness: str = option(
        readers.choice("request", "answer", "start"),
        "which requests need an Echo value: request: each, after a round trip of its own; answer: each, with the "
        "value of the last answer or else after a round trip; start: a device's first after each start of the agent",
        default="answer",
    )

    def __post_init__(self) -> None:
        """Raise ValueError where every request would be refused."""
        if self.required and self.credentials_dir is None:
            raise ValueError("required: expected only with credentials_dir")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Section [http]."""

    enabled: bool = option(readers.boolean, "accept events over HTTP, with health, status and metrics", default=True)
    bind: str = option(
        readers.listen_address,
        "address and TCP port; beyond the loopback `token_file` is required; [::] accepts IPv6 and IPv4",
        default="127.0.0.1:8580",
    )
    token_file: Path | None = option(
        readers.secret_path, "who may post and who may read, by bearer token: docs/http.md", default=None
    )
    tls_certificate: Path | None = option(readers.file, "certificate chain (PEM); with it, HTTPS only", default=None)
    tls_key: Path | None = option(readers.secret_path, "private key of the certificate (PEM)", default=None)
    max_body_bytes: int = option(readers.positive_size, "largest body", default=65_536)


@dataclass(frozen=True, slots=True)
class DevicesSettings:
    """Section [devices]."""

    allow: tuple[str, ...] = option(readers.patterns, "devices whose events are accepted; empty: all", default=())
    deny: tuple[str, ...] = option(
        readers.patterns, "devices whose events are refused, ignoring case; takes precedence over `allow`", default=()
    )
    require: str = option(
        readers.choice("nothing", "authenticated"),
        "`authenticated`: only senders with a token or OSCORE credentials, and nothing over MQTT",
        default="nothing",
    )

    events_per_second_max: int | None = option(
        readers.positive,
        "events a second of each device and of each address but those of relays and the MQTT broker, for ten seconds "
        "at once; what exceeds is refused with 429 or 4.29, or over MQTT rejected",
        default=None,
    )

    stored_bytes_max: int | None = option(
        readers.positive_size,
        "bytes of the undelivered events of each device and of each address but those of relays, so that none fills "
        "the store; what exceeds is refused with 429 or 4.29, but no resend of a stored event. Not over MQTT, and from "
        "zero at each start. What is delivered reduces all shares alike. On the disk they take up to twice as much",
        default=None,
    )


@dataclass(frozen=True, slots=True)
class MappingSettings:
    """The keys above all sections."""

    folder: Path | None = option(
        readers.path, "folder with files of further mappings", key="mappings_dir", default=None
    )
    own: tuple[EventMapping, ...] = option(
        topics.read_mappings, "mappings of payloads in other formats: docs/mappings.md", key="mappings", default=()
    )


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """Section [mqtt]."""

    enabled: bool = option(readers.boolean, "accept events from an MQTT broker", default=False)
    host: str = option(readers.address, "the broker's name or address", default="localhost")
    port: int = option(readers.port, "the broker's port; with TLS usually 8883", default=1883)
    version: str = option(readers.choice("5", "3.1.1"), "MQTT protocol version", default="5")
    username: str | None = option(readers.text, "user name at the broker", default=None)
    password_file: Path | None = option(readers.secret_path, "file whose first line is the password", default=None)
    tls: bool = option(readers.boolean, "encrypt, and check the broker's certificate and name", default=False)
    tls_ca_file: Path | None = option(
        readers.file, "CA certificates (PEM) for the broker's; default: the system's", default=None
    )
    tls_certificate_file: Path | None = option(readers.file, "the gateway's client certificate (PEM)", default=None)
    tls_key_file: Path | None = option(readers.secret_path, "its private key, if not in the same file", default=None)
    session_expiry_seconds: float = option(
        readers.duration,
        "how long the broker keeps messages while the gateway is disconnected (MQTT 5; with 3.1.1 the broker decides)",
        key="session_expiry",
        default=7 * DAY_SECONDS,
    )
    max_body_bytes: int = option(readers.positive_size, "largest message; a larger one is rejected", default=65_536)
    base_topic: str = option(
        topics.base_topic, "Zigbee2MQTT's base topic; an empty text disables it", default="zigbee2mqtt"
    )
    subscriptions: tuple[topics.Subscription, ...] = option(
        topics.read_subscriptions, "events of other publishers, in the formats of docs/sensors.md", default=()
    )

    def __post_init__(self) -> None:
        """Raise SettingErrors where one option has no effect without another."""
        files = ("tls_ca_file", "tls_certificate_file", "tls_key_file")
        unused = [name for name in files if not self.tls and getattr(self, name) is not None]
        mistakes = [f"{name}: expected only with tls = true" for name in unused]
        if self.tls_key_file is not None and self.tls_certificate_file is None:
            mistakes.append("tls_key_file: expected only with tls_certificate_file")
        if self.password_file is not None and self.username is None:
            mistakes.append("password_file: expected only with username")
        if self.session_expiry_seconds < 1:
            mistakes.append("session_expiry: expected a second at least, or the broker keeps no messages")
        if self.enabled and not self.base_topic and not self.subscriptions:
            mistakes.append("enabled: expected a base_topic or at least one of [[mqtt.subscriptions]]")
        if mistakes:
            raise SettingErrors(*mistakes)


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """Section [identity]."""

    retention_seconds: float = option(
        readers.duration,
        "how long a fingerprint is remembered, in running time of the agent, as far as the store has space for it",
        key="retention",
        default=float(RETENTION_SECONDS),
    )
    memory_bytes: int = option(
        readers.size,
        "memory for fingerprints, 16 MiB at least; older ones are looked up on disk through a filter in memory",
        key="memory",
        default=64 << 20,
    )
    resend_window_seconds: float = option(
        readers.duration,
        "time within which equal data without an id is marked as a possible duplicate",
        key="resend_window",
        default=300.0,
    )
    resend_horizon_seconds: float | None = option(
        readers.duration,
        "time after which no sensor of this gateway resends an event; bounds the age of duplicates",
        key="resend_horizon",
        default=None,
    )
    rules: tuple[IdentityRule, ...] = option(
        read_rules,
        "identity of the events of some devices; after a change, resent events are new: docs/identity.md",
        default=(),
    )

    def __post_init__(self) -> None:
        """Raise SettingErrors where a rule's window exceeds the retention, or the memory is too small."""
        mistakes = []
        if any((rule.window_seconds or 0) > self.retention_seconds for rule in self.rules):
            mistakes.append("rules: expected a window no longer than retention")
        if self.memory_bytes < 16 << 20:
            mistakes.append("memory: expected 16 MiB at least, for the latest fingerprints")
        if mistakes:
            raise SettingErrors(*mistakes)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Section [store]."""

    max_bytes: int = option(readers.size, "maximum size of the store on disk", default=1 << 30)
    when_full: str = option(
        readers.choice("refuse", "drop-oldest"),
        "refuse: new events are refused until there is space; drop-oldest: the oldest are dropped and declared",
        default="refuse",
    )
    commit_delay_ms_max: int = option(readers.count, "how long a commit waits for more events", default=0)
    commit_events_max: int = option(readers.positive, "maximum number of events in a commit", default=1_000)
    keep_processed_seconds: float = option(
        readers.duration, "how long processed events are kept", key="keep_processed", default=3_600.0
    )


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Section [kafka]."""

    bootstrap_servers: str = option(readers.servers, "Kafka brokers, host:port separated by commas")
    topic: str = option(readers.kafka_topic, "topic of the events", default="oncegate.events")
    delivery: str = option(
        readers.choice("at-least-once", "exactly-once", "at-most-once"),
        "guarantee for sends to Kafka: docs/kafka.md",
        default="at-least-once",
    )
    properties: Mapping[str, str] = option(
        readers.properties, "librdkafka properties, such as security.protocol", default_factory=dict
    )
    properties_file: Path | None = option(
        readers.secret_path,
        "file of secret properties, one per line as in `sasl.password=…`; takes precedence over `properties`",
        default=None,
    )
    mac_key_file: Path | None = option(
        readers.secret_path,
        "this gateway's key, by which the job knows its records (`oncegate credentials --gateway`): "
        "docs/security.md#records-that-only-their-gateway-can-write",
        default=None,
    )
    bytes_per_second_max: int | None = option(
        readers.positive_size, "cap on what the forwarder sends to Kafka each second; without it, no cap", default=None
    )
    hours: tuple[readers.Span, ...] = option(
        readers.hours, "local hours of the day in which anything is sent to Kafka; empty: all", default=()
    )
    oversized_after_seconds: float = option(
        readers.duration,
        "how long Kafka must refuse an event because of its size before it is given up",
        key="oversized_after",
        default=86_400.0,
    )
    spread: str = option(
        readers.choice("device", "gateway"),
        "whose id decides the partition of an event: docs/kafka.md, Thin uplinks",
        default="device",
    )
    gather_seconds: float | None = option(
        readers.duration,
        "how long a new event waits at most for others that are sent together with it; not in other lanes",
        key="gather",
        default=None,
    )


@dataclass(frozen=True, slots=True)
class ForwardSettings:
    """Section [forward]."""

    lanes: tuple[Lane, ...] = option(
        read_lanes, "events that are stored and sent apart from all others, by priority: docs/lanes.md", default=()
    )


@dataclass(frozen=True, slots=True)
class ReceiptSettings:
    """Section [receipts]."""

    enabled: bool = option(
        readers.boolean, "wait for the cloud's receipt; false: forwarded events are processed", default=True
    )
    group: str = option(
        readers.text, "consumer group whose committed offsets are the receipts", default="oncegate-cloud"
    )
    poll_seconds: float = option(
        readers.positive_duration, "interval at which the group's offsets are read", default=30.0
    )
    any_commit: bool = option(
        readers.boolean, "accept offsets committed by consumers other than the job", default=False
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings; the fields are the sections of the file in their order, with _ for the dot in a name."""

    mappings: MappingSettings = field(default=MappingSettings(), kw_only=True)
    """The keys above all sections."""
    gateway: GatewaySettings
    kafka: KafkaSettings
    coap: CoapSettings = CoapSettings()
    coap_oscore: OscoreSettings = OscoreSettings()
    http: HttpSettings = HttpSettings()
    devices: DevicesSettings = DevicesSettings()
    mqtt: MqttSettings = MqttSettings()
    identity: IdentitySettings = IdentitySettings()
    store: StoreSettings = StoreSettings()
    forward: ForwardSettings = ForwardSettings()
    receipts: ReceiptSettings = ReceiptSettings()
    sources: Mapping[str, Any] = field(default_factory=dict)
    """Those of the sections [sources.NAME]: the ways in of other packages."""
