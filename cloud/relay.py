"""Give receipts for consumers that cannot give them: at the lowest offset that all of their groups have committed.

    oncegate-cloud relay --bootstrap-servers localhost:9092 --group connect-archive --group alarms
    oncegate-cloud relay --bootstrap-servers localhost:9092 --without-members flink --metrics 127.0.0.1:9109

The consumers must commit an offset after their work (at least once). The relay begins at the lowest offset from which
on all of the groups are known to have read; what is below, gateways send again. It gives no further receipt, and says
why, once it cannot know what a group has read: after a reset or the loss of its offsets, or after the topic was
truncated or made anew. Start it again when that is clear: it begins where the groups are then.

Exit status: 0 ended by SIGTERM or SIGINT; 1 a failure, or ended while it gave no receipts; 2 wrong usage.
"""

import argparse
import logging
import threading
from collections.abc import Sequence
from functools import partial

from confluent_kafka import KafkaException

from cloud import command_line
from cloud.errors import KafkaError, StopError
from cloud.relaying.relay import Relay, RelaySettings
from cloud.runtime.outcome import run_until_stopped
from cloud.settings import address, table_id
from cloud.stream.group_kafka import GroupKafka
from cloud.table.metrics import Metrics
from contract.receipt import GROUP_DEFAULT

LOOK_SECONDS = 1.0

logger = logging.getLogger("cloud.relay")


class RelayMetrics(Metrics):
    """Gauges; docs/relay.md explains each."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        super().__init__("oncegate_relay", address)
        self.held = self._gauge("held", "1 while no further receipt is given")
        self._waiting = self._gauge("waiting_partitions", "Partitions in which a group has committed no offset")
        self._looked = self._gauge("look_timestamp_seconds", "Time of the latest look at all groups")
        self._behind = self._gauge("behind_records", "Records between the first of the groups and this one", ["group"])

    def looked(self, relay: Relay) -> None:
        """Note what a look has found."""
        self._looked.set_to_current_time()
        self._waiting.set(len(relay.waiting))
        most = {p: max(group.offsets.get(p, 0) for group in relay.groups) for p in relay.groups[0].offsets}
        for group in relay.groups:
            self._behind.labels(group.name).set(sum(end - group.offsets.get(p, 0) for p, end in most.items()))


def main(arguments: Sequence[str]) -> int:
    """Give receipts until a stop is requested; return the exit status."""
    return run_until_stopped(partial(run, parse(arguments)), logger)


def run(settings: RelaySettings, stop: threading.Event) -> int:
    """Look at the groups until `stop` is set, or until no receipt can be given; then wait for `stop`."""
    metrics = RelayMetrics(settings.metrics)
    try:
        kafka = GroupKafka(settings.bootstrap_servers, settings.topic, settings.properties)
    except KafkaException as error:  # a property that the client does not know
        raise StopError(f"Kafka's client: {error.args[0].str()}") from error
    relay: Relay | None = None
    failure = ""
    while not stop.wait(LOOK_SECONDS if relay is not None else 0):
        try:
            if relay is None:
                relay = Relay(kafka, settings)
                logger.info("stage=begin topic=%s table=%s", settings.topic, settings.table)
            relay.look()
            metrics.looked(relay)
            failure = ""
        except KafkaError as error:
            if failure != str(error):
                logger.warning("stage=look error=%r", str(error))
            failure = str(error)
            stop.wait(LOOK_SECONDS)
        except StopError as error:
            logger.error("stage=held reason=%r hint='start the relay again to begin where the groups are'", str(error))
            metrics.held.set(1)
            stop.wait()
            return 1
    return 0


def parse(arguments: Sequence[str]) -> RelaySettings:
    """Read the arguments; wrong usage ends the process with status 2 and a message."""
    options = parser()
    given = options.parse_args(arguments)
    groups = [*given.group, *given.without_members]
    if not groups:
        options.error("the following arguments are required: --group")
    if len({*groups, given.receipts_group}) <= len(groups):
        options.error("argument --group: each group once, and not the one of the receipts")
    return command_line.read(
        RelaySettings,
        given,
        groups=tuple(given.group),
        without_members=tuple(given.without_members),
        properties=command_line.properties(given),
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = command_line.new_parser("relay", __doc__)
    add = parser.add_argument
    command_line.add_topic(parser, has_group=False)
    add("--group", action="append", default=[], metavar="GROUP", help="a consumer's group; repeatable")
    add(
        "--without-members",
        action="append",
        default=[],
        metavar="GROUP",
        help="the group of a program that commits without joining it, such as Flink; repeatable. A reset of its "
        "offsets to later ones is not noticed",
    )
    add("--receipts-group", default=GROUP_DEFAULT, metavar="GROUP", help="group of the receipts; default: %(default)s")
    add(
        "--succeeds",
        type=table_id,
        metavar="ID[,ID]",
        help="ids of the tables whose receipts these replace, such as those of the job or of other groups",
    )
    add("--metrics", type=address, metavar="HOST:PORT", help="serve metrics for Prometheus at /metrics of this address")
    command_line.add_properties(parser, is_java=False)
    return parser
