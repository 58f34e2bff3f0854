"""Give receipts for consumers that cannot give them: at the lowest offset that all of their groups have committed.

    oncegate-cloud relay --bootstrap-servers localhost:9092 --group connect-archive --group alarms
    oncegate-cloud relay --bootstrap-servers localhost:9092 --without-members flink --metrics 127.0.0.1:9109

The consumers must commit an offset after their work (at least once). The relay begins at the lowest offset from which
on all of the groups are known to have read; what is below, gateways send again. It gives no further receipt, and says
why, once it cannot know what a group has read: after a reset or the loss of its offsets, or after the topic was
truncated or made anew. Start it again when that is clear: it begins where the groups are then.

Exit status: 0 ended by SIGTERM or SIGINT; 1 a failure, or ended while it gave no receipts; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
from collections.abc import Sequence
from functools import partial

from confluent_kafka import KafkaException

from cloud import kafka_options
from cloud.errors import KafkaError, StopError
from cloud.relaying.kafka import RelayKafka
from cloud.relaying.metrics import RelayMetrics
from cloud.relaying.relay import Relay, RelaySettings
from cloud.runtime.outcome import run_until_stopped
from cloud.settings import address, table_id
from contract.receipt import GROUP_DEFAULT
from contract.topics import EVENTS

LOOK_SECONDS = 1.0

logger = logging.getLogger("cloud.relay")


def main(arguments: Sequence[str]) -> int:
    """Give receipts until a stop is requested; return the exit status."""
    return run_until_stopped(partial(run, parse(arguments)), logger)


def run(settings: RelaySettings, stop: threading.Event) -> int:
    """Look at the groups until `stop` is set, or until no receipt can be given; then wait for `stop`."""
    metrics = RelayMetrics(settings.metrics)
    try:
        kafka = RelayKafka(settings.bootstrap_servers, settings.topic, settings.properties)
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
            metrics.hold()
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
    return RelaySettings(
        bootstrap_servers=given.bootstrap_servers,
        topic=given.topic,
        groups=tuple(given.group),
        without_members=tuple(given.without_members),
        receipts_group=given.receipts_group,
        succeeds=given.succeeds,
        metrics=given.metrics,
        properties=kafka_options.properties(given),
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog="oncegate-cloud relay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    add("--topic", default=EVENTS, help="default: %(default)s")
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
    kafka_options.add_options(parser, is_java=False)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
