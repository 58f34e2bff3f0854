"""A small consumer with a mistake, which writes JSON lines: small_consumer.py MISTAKE FILE."""

import json
import os
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer

mistake, file = sys.argv[1:]
if mistake == "crashes":
    sys.exit("no such setting")
given = {"bootstrap.servers": os.environ["ONCEGATE_BOOTSTRAP_SERVERS"], "group.id": os.environ["ONCEGATE_GROUP"]}
own = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
if mistake != "does-nothing":
    consumer = Consumer({**given, **own})
    consumer.subscribe([os.environ["ONCEGATE_TOPIC"]])
while True:
    if mistake == "does-nothing":
        time.sleep(60)
        continue
    polled = [one for one in consumer.consume(500, 0.5) if one.error() is None]
    with Path(file).open("a") as opened:
        for message in polled:
            headers: list[tuple[str, bytes]] = list(message.headers() or ())  # type: ignore[arg-type]  # the stubs allow texts
            mark = dict(headers).get("ce_id", b"").decode()
            opened.write(json.dumps({"fingerprint": mark or None}) + "\n")
        os.fsync(opened.fileno())
    if polled and mistake == "commits-plain-offsets":
        consumer.commit(asynchronous=False)
