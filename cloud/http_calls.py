"""What `--effects` may use to call another program by HTTP, for rows of Spark and for dicts (docs/processing.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
from psycopg import sql

from cloud.postgres.connection import connected, durable_transaction, identifier, read_connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_AT_ONCE = 1000
TRIES = 3
ANSWER_BYTES_MAX = 1000
"""How much of an answer a dead letter, or the error, has."""
_REPEATED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the call is made again at once."""
_REFUSED = frozenset({400, 409, 410, 413, 414, 415, 422, 431, 500, 501})
"""Statuses that are about the row: after the last try it is a dead letter. All others are about the service."""
_CREATE = """
    CREATE TABLE IF NOT EXISTS {} (url text, fingerprint bytea, status integer, answer text, body text,
                                   at timestamp with time zone DEFAULT now(), PRIMARY KEY (url, fingerprint))
"""
_INSERT = (
    "INSERT INTO {} (url, fingerprint, status, answer, body) "
    "VALUES (%(url)s, %(fingerprint)s, %(status)s, %(answer)s, %(body)s) ON CONFLICT DO NOTHING"
)


def post(
    rows: DataFrame | Iterable[Mapping[str, Any]],
    url: str,
    connection: Path,
    dead_letters: str,
    *,
    headers: Mapping[str, str] | None = None,
    devices_at_once: int = 8,
    seconds_max: float = 10.0,
) -> int:
    """POST each row as JSON, in order for each device, with its fingerprint as Idempotency-Key.

    Return the number of dead letters. A second call sends all again, under the same keys. What the service refuses goes
    once into the table `dead_letters` of PostgreSQL, which is created if absent; where the service is away, or takes no
    row, OSError is raised. The rows need the columns fingerprint and device, and in Spark kafka_partition and
    kafka_offset. `connection` is a file as that of `--connection`; `seconds_max` is the time for one try of TRIES.
    """
    retry = urllib3.Retry(TRIES - 1, allowed_methods=None, status_forcelist=_REPEATED, backoff_factor=0.5)
    retry.raise_on_status = retry.respect_retry_after_header = False
    count, rest = 0, _in_order(rows)
    with (
        urllib3.PoolManager(maxsize=devices_at_once, block=True, timeout=seconds_max, retries=retry) as pool,
        connected(read_connection(connection)) as opened,
    ):
        opened.execute(sql.SQL(_CREATE).format(identifier(dead_letters)))
        send = partial(_send, pool, url, headers or {})
        while some := list(islice(rest, ROWS_AT_ONCE)):
            by_device: dict[object, list[Mapping[str, Any]]] = {}
            for row in some:
                by_device.setdefault(row["device"], []).append(row)
            with ThreadPoolExecutor(devices_at_once) as threads:
                for letters in threads.map(send, by_device.values()):
                    with durable_transaction(opened):
                        for letter in letters:
                            opened.execute(sql.SQL(_INSERT).format(identifier(dead_letters)), letter)
                    count += len(letters)
    return count


def _send(
    pool: urllib3.PoolManager, url: str, headers: Mapping[str, str], rows: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """POST rows one after the other; return the dead letters, raise OSError where the service takes no row."""
    letters = []
    for row in rows:
        mark = bytes(row["fingerprint"])
        body = json.dumps(dict(row), default=_text)
        own = {"Content-Type": "application/json", "Idempotency-Key": f'"{mark.hex()}"'}
        try:
            answer = pool.request(
                *("POST", url), body=body, headers={**headers, **own}, redirect=False, preload_content=False
            )
            said = answer.read(ANSWER_BYTES_MAX).decode(errors="replace").replace("\x00", "\ufffd")
            answer.close()  # with what is unread
        except urllib3.exceptions.HTTPError as error:
            raise OSError(f"{url}: {error}") from error
        if answer.status in _REFUSED:
            letters.append({"url": url, "fingerprint": mark, "status": answer.status, "answer": said, "body": body})
        elif not 200 <= answer.status < 300:
            raise OSError(f"{url}: status {answer.status}: {said}")
    return letters


def _in_order(rows: DataFrame | Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    if isinstance(rows, Iterable):
        return iter(rows)
    return (row.asDict() for row in rows.orderBy("kafka_partition", "kafka_offset").toLocalIterator())


def _text(value: object) -> str:
    return bytes(value).hex() if isinstance(value, bytes | bytearray) else str(value)
