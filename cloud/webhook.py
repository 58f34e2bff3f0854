"""Side effects that repeat: a call for each new event, until it is answered, under one key."""

from __future__ import annotations

import logging
import threading
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from cloud.consumer_table import ConsumerTable

CALLS_AT_ONCE = 100
ANSWER_SECONDS_MAX = 10.0

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
        """Make the calls that are due, as many as go without a failure."""
        for fingerprint, body in self._table.calls(CALLS_AT_ONCE):
            if stop.is_set() or not self._call(fingerprint.hex(), body):
                return
            logger.info("stage=called key=%s", fingerprint.hex())
            self._table.called(fingerprint)

    def _call(self, key: str, body: str) -> bool:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        request = urllib.request.Request(self._url, (body or "null").encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX):
                return True
        except (urllib.error.URLError, OSError) as error:
            logger.warning("webhook %s: %s; tried again later", self._host, error)
            return False
