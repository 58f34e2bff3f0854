"""Side effects that repeat: a call for each new event, until it is answered, under one key."""

from __future__ import annotations

import logging
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from urllib.parse import urlsplit

from cloud.plain_consumer.table import ConsumerTable

CALLS_AT_ONCE = 100
ANSWER_SECONDS_MAX = 10.0
ROUND_SECONDS_MAX = 30.0
"""After so long the consumer polls on: its group waits for max.poll.interval.ms."""
WAIT_SECONDS_MAX = 300.0
"""So long a call waits at most after it has failed again: 1, 2, 4 … seconds before that."""

logger = logging.getLogger(__name__)


class Webhook:
    """Call a URL for each event that became a row.

    What is to be called is written with the row, and forgotten after a 2xx. A death between the two calls once more:
    no sender can do better, so the receiver has to know a call again by its Idempotency-Key, the fingerprint.
    """

    def __init__(self, url: str, table: ConsumerTable) -> None:
        self._url = url
        self._host = urlsplit(url).hostname
        """What the log may say of the URL, which may hold a secret elsewhere."""
        self._table = table

    def deliver(self, stop: threading.Event) -> None:
        """Make the calls that are due; one that is refused waits, and holds no other up.

        Where there is no answer at all the rest is left for the next time: the receiver is away, and each try would
        cost its time-out, which the group does not wait for.
        """
        ends = time.monotonic() + ROUND_SECONDS_MAX
        for fingerprint, body in self._table.calls_due(CALLS_AT_ONCE):
            if stop.is_set() or time.monotonic() > ends:
                return
            key = fingerprint.hex()
            try:
                self._call(key, body)
            except (urllib.error.URLError, OSError, HTTPException) as error:
                failures = self._table.put_off(fingerprint, WAIT_SECONDS_MAX)
                logger.warning("stage=put-off key=%s failures=%d host=%s error=%s", key, failures, self._host, error)
                if not isinstance(error, urllib.error.HTTPError):
                    return
            else:
                logger.info("stage=called key=%s", key)
                self._table.called(fingerprint)

    def _call(self, key: str, body: str) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        request = urllib.request.Request(self._url, (body or "null").encode(), headers)
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX):
            pass
