"""A sensor in Python, compatible with MicroPython: it keeps its events, and sends them in packs until they are on disk.

    python3 sensor.py ::1 5683 urn:dev:mac:00158d0001a2b3c4

It uses these modules of MicroPython: socket, json, os, time, random. A pack is an array of events in one request; one
2.04 acknowledges all of it. After a lost ACK the next pack may be divided differently, because the gateway recognises
each event individually.
"""

import json
import os
import random
import socket
import sys
import time

ACK_TIMEOUT = 2.0
MAX_RETRANSMIT = 4
PACK_BYTES = 1000  # with the headers below one frame of most networks; smaller on 6LoWPAN
JSON = 50
STRANGER = (0x81, 0x83)  # 4.01, 4.03: the gateway's operator can change that


class Sensor:
    """A queue that keeps events until they are acknowledged; store it in flash if there is any."""

    def __init__(self, gateway, port, device, boot):
        self.device = device
        self.boot = boot
        self.number = 0
        self.queue = []
        self.message_id = random.getrandbits(16)
        address = socket.getaddrinfo(gateway, port, 0, socket.SOCK_DGRAM)[0]
        self.socket = socket.socket(address[0], socket.SOCK_DGRAM)
        self.socket.connect(address[-1])

    def measured(self, data):
        """Queue an event. Boot id and number identify it, however often it is sent."""
        self.number += 1
        self.queue.append({"device": self.device, "boot": self.boot, "id": self.number, "data": data})

    def send(self):
        """Send packs until the queue is empty; return False if one was not accepted: try again later."""
        while self.queue:
            events, body = self.pack()
            code = self.request(body)
            if code == 0 or code >> 5 == 5 or code in STRANGER:
                return False  # no answer, the store is full, or the device is not allowed (yet)
            # 2.04: on disk. Other 4.xx: these events are never accepted, and would block the others.
            del self.queue[:events]
        return True

    def pack(self):
        """Return as many of the oldest events as fit into a pack, at least one, and its body."""
        events, body = 1, json.dumps(self.queue[:1])
        while events < len(self.queue):
            more = json.dumps(self.queue[: events + 1])
            if len(more) > PACK_BYTES:
                break
            events, body = events + 1, more
        return events, body.encode()

    def request(self, body):
        """Send a confirmable POST to /e, with RFC 7252's retransmissions; return the answer's code, 0 without one."""
        self.message_id = (self.message_id + 1) & 0xFFFF
        token = bytes([random.getrandbits(8) for _ in range(4)])
        sent = bytes([0x44, 0x02]) + self.message_id.to_bytes(2, "big") + token
        sent += b"\xb1e" + bytes([0x11, JSON]) + b"\xff" + body
        wait = ACK_TIMEOUT * (1 + random.getrandbits(8) / 512)
        for _ in range(MAX_RETRANSMIT + 1):
            self.socket.send(sent)  # the same bytes each time
            code = self.answer(sent, wait)
            if code:
                return code
            wait *= 2
        return 0

    def answer(self, sent, wait):
        """Wait for the answer with the token of the request; return its code, 0 without one."""
        end = time.time() + wait
        while time.time() < end:
            self.socket.settimeout(max(0.01, end - time.time()))
            try:
                heard = self.socket.recv(256)
            except OSError:
                continue  # the time is over, or the gateway's port is closed for now
            if len(heard) == 4 and heard[0] == 0x60 and heard[2:4] == sent[2:4]:
                end = time.time() + 60  # an empty ACK: the answer follows separately
            elif len(heard) >= 8 and heard[0] & 15 == 4 and heard[4:8] == sent[4:8]:
                if heard[0] >> 4 & 3 == 0:
                    self.socket.send(bytes([0x60, 0]) + heard[2:4])
                return heard[1]
        return 0


def new_boot():
    """Return a random id of this start: ids restart at 1, and `boot` distinguishes the events of different starts."""
    return int.from_bytes(os.urandom(4), "big")


if __name__ == "__main__":
    sensor = Sensor(sys.argv[1], int(sys.argv[2]), sys.argv[3], new_boot())
    for reading in range(50):
        sensor.measured({"temperature": 20 + reading / 10, "battery": 3012})
    print("sent" if sensor.send() else "kept")
