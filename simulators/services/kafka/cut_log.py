"""A broker whose disk has lost the end of a partition's log, like unflushed data in a power cut."""

import struct

from simulators.services.kafka.broker import Broker

_BATCH_HEAD = struct.Struct(">qi")
"""Of each batch in a segment: its first offset, and the length of the rest."""


def cut_log(broker: Broker, topic: str, partition: int, offset: int) -> None:
    """Kill the broker, truncate the log before the batch that begins at an offset, and restart the broker."""
    broker.kill()
    with (broker.data_folder / f"{topic}-{partition}" / f"{0:020}.log").open("r+b") as log:
        data, at = log.read(), 0
        while _BATCH_HEAD.unpack_from(data, at)[0] < offset:
            at += _BATCH_HEAD.size + _BATCH_HEAD.unpack_from(data, at)[1]
        log.truncate(at)
    broker.start()
