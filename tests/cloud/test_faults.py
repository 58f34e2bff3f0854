"""Faults that a fleet meets: the generated events are compared with the rows of the table, on both sinks."""

import shutil
from dataclasses import dataclass, field, replace

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from contract.event import Event
from contract.record import ClockTrust
from tests.cloud.gateway import Gateway, Record, now, readings, without_header
from tests.cloud.running import DELTA, POSTGRES, CloudSide

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.heavy]

DEVICE = "urn:dev:mac:0000000000000007"
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
YEAR = 365 * DAY
KAFKA_SECONDS_MAX = 120
"""For one request of a producer to a broker on a busy machine."""
on_both = pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)


@dataclass(slots=True)
class Ledger:
    """The generated events, and how many records Kafka received."""

    cloud: CloudSide
    marks: set[str] = field(default_factory=set)
    sent: int = 0
    quarantined: int = 0

    def send(self, records: list[Record], partition: int | None = None) -> None:
        self.marks |= {dict(record.headers)["ce_id"].decode() for record in records}
        self.cloud.send(records, partition)
        self.sent += len(records)

    def spoil(self, records: list[Record], partition: int | None = None) -> None:
        """Send records that belong in quarantine."""
        self.cloud.send(records, partition)
        self.sent += len(records)
        self.quarantined += len(records)

    def check(self) -> None:
        """Assert that nothing is lost, doubled, dropped silently, or receipted without being there."""
        self.cloud.wait_for_receipts(self.sent)
        assert self.cloud.marks() == sorted(self.marks)
        assert len(self.cloud.quarantined()) == self.quarantined
        log = self.cloud.jobs[-1].log()
        assert "dropped_by_watermark=" not in log.replace("dropped_by_watermark=0", "")


@on_both
def test_a_hard_week(cloud: CloudSide) -> None:
    """One job, one batch of faults after the other; each is checked before the next one."""
    ledger = Ledger(cloud)
    live = Gateway()
    cloud.window = "1m"
    cloud.start()
    ledger.send(live.records(readings(50)))
    ledger.check()
    offline = Gateway("gw-2", "00000000000000b2")
    backlog = send_backlog(ledger, live, offline)
    send_with_wrong_clocks(ledger, live)
    send_over_three_gateways(ledger)
    send_malformed_duplicates(ledger, live)

    # A gateway restored from a backup: earlier events are sent again under their labels, and a new epoch continues.
    ledger.send([*backlog[100:], *Gateway("gw-2", "00000000000000b3").records(readings(20, start=6000))])
    ledger.check()
    send_wrapped_counter(ledger, live, offline)

    # Aborted transactions leave nothing, and a former producer is fenced; the receipts cover both.
    aborted(cloud, live.records(readings(30, start=7000)))
    ledger.send(live.records(readings(30, start=7100)))
    cloud.wait_for_rows(len(ledger.marks))
    assert cloud.marks() == sorted(ledger.marks)

    # More partitions than before.
    admin = AdminClient({"bootstrap.servers": cloud.bootstrap_servers})
    admin.create_partitions([NewPartitions(cloud.topic, 5)])[cloud.topic].result(60)
    ledger.send(live.records(readings(30, start=8000)), 4)
    cloud.wait_for_rows(len(ledger.marks))
    assert cloud.marks() == sorted(ledger.marks)
    assert cloud.stop() == 0


def send_backlog(ledger: Ledger, live: Gateway, offline: Gateway) -> list[Record]:
    """Send the backlog of a gateway that was offline for three days beside live traffic; return the backlog."""
    old = [replace(event, time=now() - 3 * DAY + place) for place, event in enumerate(readings(200, start=1000))]
    backlog = [offline.record(event, event.time) for event in old]
    ledger.send(
        [record for pair in zip(backlog, live.records(readings(200, start=2000)), strict=True) for record in pair]
    )
    ledger.check()
    return backlog


def send_with_wrong_clocks(ledger: Ledger, live: Gateway) -> None:
    """Send with clocks a year ahead and in 1970: the sensors', and the gateways', trusted or not."""
    for place, (time, clock) in enumerate(
        [(now() + YEAR, ClockTrust.TRUSTED), (0, ClockTrust.UNTRUSTED), (now() + YEAR, ClockTrust.UNTRUSTED)]
    ):
        wrong = Gateway(f"gw-3{place}", f"00000000000000c{place}", clock=clock)
        events = [replace(event, time=time) for event in readings(20, start=3000 + 100 * place)]
        ledger.send(
            [*wrong.records(events, time), *live.records(events), *live.records(readings(5, start=3050 + 100 * place))]
        )
    ledger.check()


def send_over_three_gateways(ledger: Ledger) -> None:
    """Send events of one sensor over three gateways, at once, minutes and days apart, with and without a time."""
    gateways = [Gateway(f"gw-4{n}", f"00000000000000d{n}") for n in range(3)]
    timed = [replace(event, time=now() - 2 * DAY) for event in readings(20, start=4000)]
    untimed = [Event(DEVICE, id=number, data={"t": 1}) for number in range(4100, 4120)]
    for gateway, ago in zip(gateways, (0, 5 * MINUTE, 2 * DAY), strict=True):
        ledger.send([gateway.record(event, now() - ago) for event in (*timed, *untimed)])
    ledger.check()
    ledger.send([gateways[0].record(event) for event in (*timed, *untimed)])
    ledger.check()


def send_malformed_duplicates(ledger: Ledger, live: Gateway) -> None:
    """Send malformed duplicates before the valid records, and after them."""
    good = live.records(readings(20, start=5000))
    bad = [replace(record, value=record.value[:-2]) for record in good]
    ledger.spoil(bad[:10], 0)
    ledger.send(good, 0)
    ledger.spoil(bad[10:], 0)
    ledger.spoil([without_header(record, "ce_id") for record in good] * 100, 1)  # thousands at once
    ledger.check()


def send_wrapped_counter(ledger: Ledger, live: Gateway, offline: Gateway) -> None:
    """Send events of a counter that wrapped after the retention, in one backlog, and against the table."""
    counter = Event(DEVICE, id=1, data={"t": 2})
    ledger.send([offline.record(counter, now() - 20 * DAY)])
    ledger.spoil([offline.record(counter, now() - 10 * DAY)])
    ledger.check()
    ledger.spoil([live.record(counter)])
    ledger.check()


def aborted(cloud: CloudSide, records: list[Record]) -> None:
    """Send in a transaction that a second producer of the same id fences."""
    first, second = (
        Producer({"bootstrap.servers": cloud.bootstrap_servers, "transactional.id": cloud.topic}) for _ in range(2)
    )
    first.init_transactions(KAFKA_SECONDS_MAX)
    first.begin_transaction()
    for record in records:
        first.produce(cloud.topic, record.value, record.key, 0, headers=list(record.headers))
    assert first.flush(KAFKA_SECONDS_MAX) == 0
    second.init_transactions(KAFKA_SECONDS_MAX)
    with pytest.raises(KafkaException):
        first.commit_transaction(KAFKA_SECONDS_MAX)


@on_both
def test_state_that_is_lost_stops_the_job_and_a_new_checkpoint_goes_on(cloud: CloudSide) -> None:
    ledger, gateway = Ledger(cloud), Gateway()
    first = gateway.records(readings(20))
    ledger.send(first)
    cloud.start()
    ledger.check()
    cloud.wait_for_log("batch=0 stage=done")
    assert cloud.stop() == 0
    shutil.rmtree(cloud.folder / cloud.checkpoint / "state")
    ledger.send([*first, *gateway.records(readings(20, start=20))])
    assert cloud.wait_for_end(cloud.start()) == 1
    assert (len(cloud.marks()), cloud.receipted()) == (20, 20)
    shutil.rmtree(cloud.folder / cloud.checkpoint)
    cloud.start()
    ledger.check()


@on_both
def test_a_window_made_larger_and_smaller_doubles_nothing(cloud: CloudSide) -> None:
    ledger, gateway, neighbour = Ledger(cloud), Gateway(), Gateway("gw-2", "00000000000000b2")
    told: list[Event] = []
    for place, window in enumerate(("20s", "10m", "8s", "1h")):
        cloud.window = window
        told += readings(20, start=20 * place)
        ledger.send([*gateway.records(told[-20:]), *neighbour.records(told)])
        cloud.start()
        ledger.check()
        assert cloud.stop() == 0
