"""The uplink of one gateway: for each of its brokers a listener, behind a slow link that is recorded."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Self

from benchmarks.thin_link.recorder import Recorder, Traffic, in_thread
from simulators.link.faults import Delay, LinkFault, LinkProfile, Packet
from simulators.link.tcp import StreamLink
from simulators.services import ports
from simulators.services.kafka.broker import Listener

DELAY_SECONDS: Final = 0.3
LOSS: Final = 0.1
RESEND_SECONDS: Final = 1.0
BYTES_PER_SECOND: Final = 2_000
SEED: Final = 3


@dataclass(slots=True)
class Uplink:
    """What a gateway sends and receives; open as long as the block runs."""

    listeners: Sequence[Listener]
    """One of each broker, which advertises the port of its link."""
    recorders: list[Recorder] = field(default_factory=list)
    _links: list[StreamLink] = field(default_factory=list)
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        for one in self.listeners:
            recorder = Recorder(is_kafka=one.protocol == "PLAINTEXT")
            self.recorders.append(recorder)
            self._links.append(self._open.enter_context(slow_link(one.port, recorder, one.advertised_port)))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def servers(self) -> str:
        """The bootstrap servers of the gateway."""
        return ",".join(f"127.0.0.1:{one.advertised_port}" for one in self.listeners)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return sum(link.open_connections for link in self._links)

    def cut(self) -> Mapping[str, Traffic]:
        """Return what was sent to all brokers since the last call, by the kind of request."""
        total: dict[str, Traffic] = {}
        for recorder in self.recorders:
            for kind, traffic in recorder.cut().items():
                total.setdefault(kind, Traffic()).update(traffic)
        return total


def prepare(with_tls: Sequence[bool], brokers: int, keystore: Path, name: str = "LINK") -> list[Uplink]:
    """Return an uplink for each gateway of as many brokers, some of them with TLS; names of listeners are unique."""
    free = iter(ports.free(2 * brokers * len(with_tls)))
    return [
        Uplink([_listener(f"{name}{number}", next(free), next(free), keystore, is_tls=is_tls) for _ in range(brokers)])
        for number, is_tls in enumerate(with_tls)
    ]


def _listener(name: str, own: int, advertised: int, keystore: Path, *, is_tls: bool) -> Listener:
    if not is_tls:
        return Listener("PLAINTEXT", own, advertised, name=name)
    of = f"listener.name.{name.lower()}.ssl.keystore"
    return Listener("SSL", own, advertised, {f"{of}.type": "PEM", f"{of}.location": keystore}, name)


def certificate(folder: Path) -> Path:
    """Create a certificate of this machine's address, signed by itself; return the file of it and its key."""
    file, key = folder / "broker.pem", folder / "broker.key"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    command = ["openssl", "req", *new, *subject, "-keyout", str(key), "-out", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    file.write_text(key.read_text() + file.read_text())
    return file


@dataclass(slots=True)
class Resend:
    """What TCP makes of losses: a segment arrives later, once or several times."""

    random: Random

    def apply(self, packet: Packet) -> tuple[Packet]:
        """Delay a lost segment."""
        while self.random.random() < LOSS:
            packet = packet.later(RESEND_SECONDS)
        return (packet,)


@dataclass(slots=True)
class Rate:
    """What a slow line makes of a piece: it takes time by its size."""

    def apply(self, packet: Packet) -> tuple[Packet]:
        """Delay a piece by the time that its bytes take."""
        return (packet.later(len(packet.datagram) / BYTES_PER_SECOND),)


def faults(random: Random) -> list[LinkFault]:
    """Return the faults of one direction."""
    return [Delay(DELAY_SECONDS, DELAY_SECONDS, random), Resend(random), Rate()]


@contextmanager
def slow_link(target: int, recorder: Recorder, port: int = 0) -> Iterator[StreamLink]:
    """Run the link to a port in a thread, and record what it carries."""
    profile = LinkProfile(
        lambda random: [recorder.requests(), *faults(random)],
        lambda random: [recorder.answers(), *faults(random)],
    )
    with in_thread(StreamLink(("127.0.0.1", target), profile, 0.0, SEED, port)) as link:
        yield link
