"""A sensor of one request: a CoAP POST that is resent until it is answered."""

import socket

from simulators import wire

ATTEMPTS = 30


def ask(host: str, port: int, request: wire.Request, message_id: int) -> str:
    """Send a request, again each second, and return the answer's code."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sensor:
        sensor.connect((host, port))
        sensor.settimeout(1)
        for _ in range(ATTEMPTS):
            try:
                sensor.send(request.datagram(message_id, message_id.to_bytes(4, "big")))
                message = wire.parse(sensor.recv(2048))
            except (TimeoutError, ConnectionRefusedError):
                continue
            assert message is not None
            return message.code_text
    raise AssertionError(f"{host}:{port} does not answer")
