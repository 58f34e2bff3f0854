"""Configures and connects the MQTT client: session, last will, credentials."""

import os
import ssl
from collections.abc import Mapping
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from agent.config import files
from agent.config.settings import MqttSettings
from agent.mqtt.buffered_socket import BufferedSocket
from agent.mqtt.packets import HEAD_BYTES_MAX, REMAINING_LENGTH_MAX, MqttError, Packets
from agent.mqtt.zigbee_names import LIST_BYTES_MAX

CONNECT_SECONDS_MAX = 5.0
KEEPALIVE_SECONDS = 30
SESSION_EXPIRY_SECONDS_MAX = 0xFFFF_FFFF
"""A session that never ends (MQTT 5 section 3.1.2.11.2)."""
ONLINE, OFFLINE = b"online", b"offline"
_PROTOCOLS = {"5": MQTTProtocolVersion.MQTTv5, "3.1.1": MQTTProtocolVersion.MQTTv311}


class BufferedClient(Client):
    """paho's client over a socket that reads ahead, inserted where paho inserts its wrapper for WebSockets."""

    packets: Packets
    """The parser of the connection."""

    def _create_socket(self) -> Any:
        sock: Any = super()._create_socket()  # never one of WebSockets
        return BufferedSocket(sock, self.packets)


def packet_bytes_max(settings: MqttSettings) -> int:
    """Return the size of the largest packet kept whole, an event's or a device list's."""
    return min(max(settings.max_body_bytes, LIST_BYTES_MAX) + HEAD_BYTES_MAX, REMAINING_LENGTH_MAX)


def state_topic(gateway: str) -> str:
    """Return the topic with the gateway's state, online or offline."""
    return f"oncegate/{gateway}/state"


def connect(settings: MqttSettings, gateway: str, client_id: str, in_progress_max: int) -> Client:
    """Connect in the session of a client id; blocks (names, TCP, TLS), so not for the event loop; raise MqttError.

    A client serves one connection: messages of an earlier one cannot be acknowledged on a later one.
    """
    five = settings.version == "5"
    client = BufferedClient(
        CallbackAPIVersion.VERSION2,
        client_id,
        clean_session=None if five else False,
        protocol=_PROTOCOLS[settings.version],
        reconnect_on_failure=False,  # else it would fall back to MQTT 3.1
        manual_ack=True,
    )
    client.packets = Packets(packet_bytes_max(settings), properties=five)
    client.will_set(state_topic(gateway), OFFLINE, qos=1, retain=True)
    kept = {"clean_start": False, "properties": _session(settings, in_progress_max)} if five else {}
    return _connected(client, settings, kept)


def connect_separately(settings: MqttSettings, gateway: str) -> Client:
    """Connect besides the agent, in a session that ends with the connection; raise MqttError."""
    look, protocol = f"oncegate-{gateway}-look-{os.getpid()}", _PROTOCOLS[settings.version]
    client = Client(CallbackAPIVersion.VERSION2, look, protocol=protocol, reconnect_on_failure=False)
    return _connected(client, settings, {})


def _connected(client: Client, settings: MqttSettings, session: Mapping[str, Any]) -> Client:
    try:
        client.connect_timeout = CONNECT_SECONDS_MAX
        if settings.username is not None:
            client.username_pw_set(settings.username, read_password(settings))
        if settings.tls:
            client.tls_set_context(read_tls(settings))
        client.connect(settings.host, settings.port, KEEPALIVE_SECONDS, **session)
    except (OSError, ValueError) as error:
        raise MqttError(f"cannot connect to {settings.host}:{settings.port}: {error}") from error
    return client


def _session(settings: MqttSettings, in_progress_max: int) -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # paho's own omission
    properties.SessionExpiryInterval = min(int(settings.session_expiry_seconds), SESSION_EXPIRY_SECONDS_MAX)
    properties.ReceiveMaximum = in_progress_max
    properties.MaximumPacketSize = packet_bytes_max(settings)  # the broker skips larger packets
    return properties


def read_password(settings: MqttSettings) -> str | None:
    """Read the password, for each connection, since it may have changed; raise OSError or ValueError."""
    if settings.password_file is None:
        return None
    lines = files.read_text(settings.password_file).splitlines()
    if not lines:
        raise ValueError(f"{settings.password_file}: holds no password")
    return lines[0]


def read_tls(settings: MqttSettings) -> ssl.SSLContext:
    """Read the certificates and the key, for each connection; raise OSError or ValueError."""
    files.check(settings.tls_ca_file, settings.tls_certificate_file, settings.tls_key_file)
    context = ssl.create_default_context(cafile=settings.tls_ca_file)
    # From Python 3.13 on, an authority without all extensions of RFC 5280 would be refused, such as most that people
    # create for their own broker. Its signatures, dates and names are verified as before.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if settings.tls_certificate_file is not None:
        context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file)
    return context
