"""The properties of the Kafka clients, and waiting for their answers."""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from agent.config import files
from agent.config.settings import KafkaSettings
from agent.forward.errors import KafkaSettingsError, SessionError, UnreachableError
from agent.forward.kafka.msk_iam import with_login
from agent.forward.kafka.uplink import Uplink
from contract.files import PropertiesError, parse_properties
from contract.mac import Signer, read_key

REQUEST_SECONDS_MAX: Final = 10.0
"""How long one request to the broker may take; a broker that returns meanwhile still answers it."""
OPENING_SECONDS_MAX: Final = 30.0
"""How long a client's first request may take, with the connections that it needs: over TLS on a link of 2 kB/s and 600
ms they take 20 s."""
ANSWER_SECONDS_MAX: Final = 35.0
"""How long to wait for its answer: longer than the client does, whose own error is more precise."""
FILE_SUFFIXES: Final = (".location", ".file")
"""Of the properties that name files."""
MOVING_CODES: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""A group's coordinator is being elected, or loads its offsets, as after a restart of a broker."""
STOP_POLL_SECONDS: Final = 0.1
"""How soon a wait for an answer ends when the agent stops."""
METADATA_MS_MAX: Final = 2_147_483
"""How long librdkafka may keep a topic's leaders: beyond it, its microseconds overflow, it forgets them at once, and no
ack is ever confirmed."""
_METADATA_AGES: Final = (("metadata.max.age.ms", 1), ("topic.metadata.refresh.interval.ms", 3))
"""The properties that determine it, the first that is given, and by how much."""

_CLIENT: Final[Mapping[str, str]] = {
    "client.id": "oncegate",
    "socket.timeout.ms": "10000",  # a link that drops silently is noticed after this
    "reconnect.backoff.max.ms": "2000",
    # Else a failed connection rebuilds the client's brokers tens of times a second, which takes 1 % of a core. The
    # purpose of the strategy, servers at new addresses, is served by a new client for each session.
    "metadata.recovery.strategy": "none",
    "log_level": "2",  # an unreachable broker is logged by the agent once, and not by librdkafka at every attempt
}
_PRODUCER: Final[Mapping[str, str]] = {
    "linger.ms": "5",
    "compression.type": "zstd",  # fewest bytes for little CPU: docs/benchmarks.md, The uplink
    "message.timeout.ms": "30000",
    "queue.buffering.max.messages": "20000",
    "queue.buffering.max.kbytes": "16384",  # both above what may be in flight
    # Else a topic that is being recreated gets the broker's defaults from the agent, before its own settings.
    "allow.auto.create.topics": "false",
}

_SMALL: Final[Mapping[str, str]] = {
    "queued.max.messages.kbytes": "1024",  # it reads single records, and must not hold the whole log for one
    "fetch.message.max.bytes": "65536",
    "fetch.wait.max.ms": "20",  # a request that waits at the log's end delays the next record's by as much
}

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_Client = TypeVar("_Client")


class LastError:
    """The last error that a client reported: the answer to a request often reports only a timeout."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.fatal: str | None = None

    def __call__(self, error: KafkaError) -> None:
        """Record an error, in whichever thread the client reports it."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return  # the cause was reported before
        self.text = error.str()
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.fatal = self.text

    def check(self) -> None:
        """Raise SessionError after a fatal error."""
        if self.fatal is not None:
            raise SessionError(self.fatal)


def producer_config(settings: KafkaSettings, fixed: Mapping[str, str | None]) -> dict[str, Any]:
    """Return a producer's properties: defaults, over them the user's, over them those that the delivery mode needs."""
    properties = given_properties(settings)
    for name, needed in fixed.items():
        given = properties.get(name)
        if given is not None and (needed is None or given.lower() != needed):
            wanted = "none" if needed is None else repr(needed)
            raise KafkaSettingsError(f"kafka.properties: {name} = {given!r}: the delivery mode needs {wanted}")
    ours = {name: value for name, value in fixed.items() if value is not None}
    return {**_CLIENT, **_PRODUCER, **with_login(properties), **ours, "bootstrap.servers": settings.bootstrap_servers}


def given_properties(settings: KafkaSettings) -> dict[str, str]:
    """Return the user's properties, with `kafka.properties_file` taking precedence; raise KafkaSettingsError."""
    properties = _read_properties(settings)
    name, factor = next((age for age in _METADATA_AGES if age[0] in properties), ("", 1))
    with suppress(ValueError):  # librdkafka names what is no number
        if name and int(properties[name], 0) * factor > METADATA_MS_MAX:
            raise KafkaSettingsError(
                f"kafka.properties: {name} = {properties[name]}: expected {METADATA_MS_MAX // factor} at most, "
                "beyond which Kafka's client forgets at once who leads the topic, and no event is ever forwarded"
            )
    return properties


def _read_properties(settings: KafkaSettings) -> dict[str, str]:
    if settings.properties_file is None:
        return dict(settings.properties)
    try:
        lines = files.read_text(settings.properties_file).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise KafkaSettingsError(
            f"kafka.properties_file: {settings.properties_file} cannot be read: {error}"
        ) from error
    try:
        return {**settings.properties, **parse_properties(lines, settings.properties_file)}
    except PropertiesError as error:
        raise KafkaSettingsError(f"kafka.properties_file: {error}") from error


def open_signer(settings: KafkaSettings) -> Signer | None:
    """Return what authenticates records by the gateway's key, None without one; raise KafkaSettingsError."""
    if settings.mac_key_file is None:
        return None
    try:
        return Signer(read_key(files.read_text(settings.mac_key_file)), settings.topic)
    except (OSError, ValueError) as error:  # no digit of it is in the text
        raise KafkaSettingsError(f"kafka.mac_key_file: {settings.mac_key_file} cannot be used: {error}") from None


def open_admin(settings: KafkaSettings, last_error: LastError, uplink: Uplink | None = None) -> AdminClient:
    """Open a client for administrative requests, whose bytes count on a capped uplink.

    Raise KafkaSettingsError where a property or its value is unknown.
    """
    return _open(AdminClient, settings, {}, last_error, uplink)


def open_reader(
    settings: KafkaSettings,
    group: str,
    last_error: LastError,
    *,
    unstable: bool = False,
    uplink: Uplink | None = None,
) -> Consumer:
    """Open a client that reads a group's committed offsets.

    While an open transaction holds an offset, a request for it fails; with `unstable` it returns the offset before.
    """
    isolation = "read_uncommitted" if unstable else "read_committed"
    own = {"group.id": group, "isolation.level": isolation, "enable.auto.commit": False}
    own |= {"enable.partition.eof": True, "auto.offset.reset": "error", **_SMALL}
    return _open(Consumer, settings, own, last_error, uplink)


def _open(
    client: Callable[[dict[str, Any]], _Client],
    settings: KafkaSettings,
    own: Mapping[str, Any],
    last_error: LastError,
    uplink: Uplink | None,
) -> _Client:
    """Open a client by the user's properties, and over them its own."""
    given = with_login(given_properties(settings))
    reports = {} if uplink is None else uplink.statistics()
    servers = {"bootstrap.servers": settings.bootstrap_servers}
    try:
        return client({**_CLIENT, **given, **servers, **own, **reports, "error_cb": last_error})
    except KafkaException as error:
        raise _refused(given, error) from error


def _refused(given: Mapping[str, str], error: KafkaException) -> KafkaSettingsError:
    """Return why a client cannot be opened: its own text does not name a file that cannot be read."""
    for name, value in given.items():
        if name.endswith(FILE_SUFFIXES) and value:
            try:
                os.close(os.open(value, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
            except (OSError, ValueError) as reason:
                return KafkaSettingsError(f"kafka.properties: {name}: {value} cannot be read: {reason}")
    return KafkaSettingsError(f"kafka.properties: {describe(error)}")


def answer_deadline() -> float:
    """Return the time until which a request that is made now has to be answered, by the monotonic clock."""
    return time.monotonic() + ANSWER_SECONDS_MAX


def wait_for(future: Future[_Answer], stop: threading.Event, deadline: float | None = None) -> _Answer:
    """Wait for an answer; raise KafkaException after the deadline, UnreachableError where the agent stops first.

    The client's own time limit may not hold (`wall_steps`), so the wait is limited here. Answers to one request share
    a deadline; the default is that of a request made now.
    """
    deadline = answer_deadline() if deadline is None else deadline
    while not stop.is_set():
        try:
            return future.result(max(0.0, min(STOP_POLL_SECONDS, deadline - time.monotonic())))
        except TimeoutError:
            if time.monotonic() >= deadline:
                raise no_answer() from None
    raise UnreachableError("the agent stops")


def no_answer() -> KafkaException:
    """Return the error that the client raises for a request without an answer."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))


def describe(error: KafkaException) -> str:
    """Return the text of a client's exception."""
    cause = error.args[0] if error.args else None
    return cause.str() if isinstance(cause, KafkaError) else str(error)


def code_of(error: KafkaException) -> int | None:
    """Return the code of a client's exception, None where it has none."""
    cause = error.args[0] if error.args else None
    return cause.code() if isinstance(cause, KafkaError) else None


def raw_metadata(committed: TopicPartition) -> bytes:
    """Return the bytes of a committed offset's metadata, possibly followed by foreign ones.

    librdkafka copies the metadata without its closing NUL, and the Python client reads it as a C string (2.16). So the
    format itself must show where it ends.
    """
    try:
        return (committed.metadata or "").encode()
    except UnicodeDecodeError as error:
        return bytes(error.object)
