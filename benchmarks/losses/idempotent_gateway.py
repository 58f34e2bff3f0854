"""A gateway of 20 lines around Kafka's idempotent producer: it answers 200 once the broker has confirmed an event."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from confluent_kafka import Producer

TOPIC = "idempotent"


def main() -> None:
    """Serve on a port, and produce to a bootstrap server: `python -m … PORT SERVER`."""
    producer = Producer({"bootstrap.servers": sys.argv[2], "enable.idempotence": True, "acks": "all", "linger.ms": 5})

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name that the library calls
            body = self.rfile.read(int(self.headers["Content-Length"]))
            delivered = threading.Event()
            producer.produce(TOPIC, body, on_delivery=lambda error, _: None if error else delivered.set())
            self.send_response(200 if delivered.wait(60) else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    def poll() -> None:
        while True:
            producer.poll(0.1)

    threading.Thread(target=poll, daemon=True).start()
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
