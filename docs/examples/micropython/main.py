"""A sensor in MicroPython: at each start it measures, stores the event in flash, sends all stored events, and sleeps.

Copy it to the board as main.py, with a file settings.json beside it:

    {"gateway": "192.168.1.10", "port": 5683, "device": "urn:dev:mac:00158d0001a2b3c4",
     "sleep_seconds": 60, "wifi_name": "name", "wifi_password": "password"}

Under CPython and MicroPython's Unix port it uses the current folder, and ends where a board sleeps.
"""

import json
import os
import random
import socket
import time

try:
    import machine
except ImportError:
    machine = None

STATE_FILE = "state.json"
QUEUE_MAX = 200
PACK_BYTES = 1000  # with the headers below one frame of most networks; smaller on 6LoWPAN
ACK_TIMEOUT_MS = 2000
MAX_RETRANSMIT = 4
SEPARATE_MS = 60000
JSON = 50
KEPT = (0x81, 0x83, 0x9D)  # 4.01, 4.03: the gateway's operator can change that; 4.29: later


def now_ms():
    """Return a time in milliseconds that only grows (on a board it wraps after days)."""
    return time.ticks_ms() if hasattr(time, "ticks_ms") else int(time.monotonic() * 1000)


class Sensor:
    """A queue of events in flash. An event is stored as text: printed again, a float could have other digits."""

    def __init__(self, settings):
        self.device = settings["device"]
        self.ack_timeout_ms = settings.get("ack_timeout_ms", ACK_TIMEOUT_MS)
        self.message_id = random.getrandbits(16)
        address = socket.getaddrinfo(settings["gateway"], settings["port"], 0, socket.SOCK_DGRAM)[0]
        self.socket = socket.socket(address[0], socket.SOCK_DGRAM)
        self.socket.connect(address[-1])
        try:
            with open(STATE_FILE) as file:
                self.state = json.load(file)
        except (OSError, ValueError):
            # No state yet, or it is lost: ids begin at 1, and another `boot` distinguishes them from earlier ones.
            boot = int.from_bytes(os.urandom(4), "big")
            self.state = {"boot": boot, "id": 0, "queue": []}

    def save(self):
        """Replace the state in one step: after a power cut it is the old one or the new one."""
        with open(STATE_FILE + ".new", "w") as file:
            json.dump(self.state, file)
        os.rename(STATE_FILE + ".new", STATE_FILE)

    def measured(self, data):
        """Store an event before it is sent: no later event has its id."""
        state = self.state
        if len(state["queue"]) == QUEUE_MAX:
            return  # measure again when there is room
        state["id"] += 1
        event = {"device": self.device, "boot": state["boot"], "id": state["id"], "data": data}
        state["queue"].append(json.dumps(event))
        self.save()
        print("measured", state["boot"], state["id"])

    def send(self):
        """Send packs until the queue is empty, or until one is not accepted: try again later."""
        queue = self.state["queue"]
        while queue:
            count, body = self.pack()
            code = self.request(body)
            if code == 0 or code >> 5 == 5 or code in KEPT:
                return  # no answer, the store is full, or the device is not allowed (yet)
            # 2.04: on the gateway's disk. Other 4.xx: these events are never accepted, and would block the others.
            del queue[:count]
            self.save()
            print("stored" if code >> 5 == 2 else "refused", count)

    def pack(self):
        """Return as many of the oldest events as fit into a pack, at least one, and its body."""
        queue, count, size = self.state["queue"], 1, len(self.state["queue"][0]) + 2
        while count < len(queue) and size + len(queue[count]) + 1 <= PACK_BYTES:
            size += len(queue[count]) + 1
            count += 1
        return count, ("[" + ",".join(queue[:count]) + "]").encode()

    def request(self, body):
        """Send a confirmable POST to /e, with RFC 7252's retransmissions; return the answer's code, 0 without one."""
        self.message_id = (self.message_id + 1) & 0xFFFF
        token = os.urandom(4)
        sent = bytes([0x44, 0x02]) + self.message_id.to_bytes(2, "big") + token
        sent += b"\xb1e" + bytes([0x11, JSON]) + b"\xff" + body
        wait = self.ack_timeout_ms + random.getrandbits(8) * self.ack_timeout_ms // 512
        for _ in range(MAX_RETRANSMIT + 1):
            try:
                self.socket.send(sent)  # the same bytes each time
            except OSError:
                pass  # the network, or the gateway's port, is down for now
            code = self.answer(sent, wait)
            if code:
                return code
            wait *= 2
        return 0

    def answer(self, sent, wait):
        """Wait for the answer with the token of the request; return its code, 0 without one."""
        begin = now_ms()
        while True:
            left = wait - (now_ms() - begin)
            if left <= 0:
                return 0
            self.socket.settimeout(max(1, left) / 1000)
            try:
                received = self.socket.recv(256)
            except OSError:
                continue  # the time is over, or the gateway's port is closed for now
            if len(received) == 4 and received[0] == 0x60 and received[2:4] == sent[2:4]:
                begin, wait = now_ms(), SEPARATE_MS  # an empty ACK: the answer follows separately
            elif len(received) >= 8 and received[0] & 15 == 4 and received[4:8] == sent[4:8]:
                if received[0] >> 4 & 3 == 0:
                    self.socket.send(bytes([0x60, 0]) + received[2:4])
                return received[1]


def connect(settings):
    """Join the wireless network."""
    import network

    wireless = network.WLAN(network.STA_IF)
    wireless.active(True)
    wireless.connect(settings["wifi_name"], settings["wifi_password"])
    begin = now_ms()
    while not wireless.isconnected() and now_ms() - begin < 10000:
        time.sleep(0.1)


def main():
    """Measure, send, and sleep; a board restarts main.py when it wakes."""
    with open("settings.json") as file:
        settings = json.load(file)
    if "wifi_name" in settings:
        connect(settings)
    sensor = Sensor(settings)
    sensor.measured({"temperature": 20 + random.getrandbits(6) / 10, "battery": 3012})
    sensor.send()
    print("waiting", len(sensor.state["queue"]))
    if hasattr(machine, "deepsleep"):
        machine.deepsleep(settings["sleep_seconds"] * 1000)


if __name__ == "__main__":
    main()
