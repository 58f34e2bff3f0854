"""Webhook calls for new events, repeated under one key until they are answered."""

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
"""The time after which the consumer polls again, well within max.poll.interval.ms."""
WAIT_SECONDS_MAX = 300.0
"""The maximum delay of a call that fails repeatedly; the delays before are 1, 2, 4 … seconds."""

logger = logging.getLogger(__name__)


class Webhook:
    """Calls a URL for each event that became a row.

    A call is stored in the row's transaction, and removed after a 2xx. A crash between the two repeats the call, so the
    receiver has to recognise it by its Idempotency-Key, the fingerprint.
    """

    def __init__(self, url: str, table: ConsumerTable) -> None:
        self._url = url
        self._host = urlsplit(url).hostname
        """The part of the URL for the log; the rest may contain a secret."""
        self._table = table

    def deliver(self, stop: threading.Event) -> None:
        """Make the calls that are due; a call that is refused is delayed, and does not delay others.

        Without any answer the other calls are left for the next round: the receiver is unreachable, and each attempt
        would take a timeout while the group waits.
        """
        ends = time.monotonic() + ROUND_SECONDS_MAX
        for fingerprint, body in self._table.calls_due(CALLS_AT_ONCE):
            if stop.is_set() or time.monotonic() > ends:
                return
            key = fingerprint.hex()
            try:
                self._call(key, body)
            except (OSError, HTTPException) as error:
                failures = self._table.postpone(fingerprint, WAIT_SECONDS_MAX)
                logger.warning(
                    "stage=delayed key=%s failures=%d host=%s error=%r", key, failures, self._host, str(error)
                )
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
