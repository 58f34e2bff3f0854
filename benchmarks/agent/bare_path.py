"""The limit of Python on this path: datagram, JSON, CBOR, BLAKE2b, SQLite group commit, ACK, and nothing else.

No check of what arrives, no compression, no status, no forwarding; one set in memory for duplicates. It is measured
beside the agent, and is no design: `python -m benchmarks.agent.bare_path PORT DATABASE`.
"""

import asyncio
import json
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from hashlib import blake2b

import cbor2

DATAGRAMS_PER_READ = 64
PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "cache_size=-2000", "wal_autocheckpoint=2000")

Entry = tuple[bytes, bytes, Callable[[], object]]
"""Fingerprint, payload, answer."""


class Store:
    """Commits in a thread of its own what has been submitted since its last commit."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._pending: list[Entry] = []
        self._waiting = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, entry: Entry) -> None:
        """Queue an event."""
        self._pending.append(entry)
        if len(self._pending) == 1:
            self._waiting.set()

    def _run(self) -> None:
        database = sqlite3.connect(self._path, isolation_level=None)
        for pragma in PRAGMAS:
            database.execute(f"PRAGMA {pragma}")
        database.execute("CREATE TABLE events(position INTEGER PRIMARY KEY, payload BLOB, received INTEGER)")
        database.execute("CREATE TABLE commits(number INTEGER PRIMARY KEY, fingerprints BLOB)")
        while True:
            self._waiting.wait()
            self._waiting.clear()
            batch, self._pending = self._pending, []
            now = int(time.time())
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO commits(fingerprints) VALUES (?)", (b"".join(entry[0] for entry in batch),))
            rows = [(entry[1], now) for entry in batch]
            database.executemany("INSERT INTO events(payload, received) VALUES (?, ?)", rows)
            database.execute("COMMIT")
            self._loop.call_soon_threadsafe(_answer, batch)


def _answer(batch: list[Entry]) -> None:
    for entry in batch:
        entry[2]()


class BareServer:
    """Answers confirmable POSTs as `load.c` sends them."""

    def __init__(self, udp: socket.socket, store: Store) -> None:
        self._udp = udp
        self._store = store
        self._seen: set[bytes] = set()

    def read(self) -> None:
        """Read what waits."""
        for _ in range(DATAGRAMS_PER_READ):
            try:
                datagram, address = self._udp.recvfrom(2_048)
            except BlockingIOError:
                return
            at = 4 + (datagram[0] & 15)
            ack = bytes((0x60 | datagram[0] & 15, 0x44)) + datagram[2:at]
            while datagram[at] != 0xFF:
                at += 1 + (datagram[at] & 15)
            self._take(datagram[at + 1 :], partial(self._udp.sendto, ack, address))

    def _take(self, payload: bytes, answer: Callable[[], object]) -> None:
        encoded = cbor2.dumps(json.loads(payload), canonical=True)
        fingerprint = blake2b(encoded, digest_size=16).digest()
        if fingerprint in self._seen:
            answer()
            return
        self._seen.add(fingerprint)
        self._store.submit((fingerprint, payload, answer))


async def main(port: int, path: str) -> None:
    """Serve until the process is killed."""
    udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    udp.bind(("::1", port))
    udp.setblocking(False)
    asyncio.get_running_loop().add_reader(udp, BareServer(udp, Store(path)).read)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
