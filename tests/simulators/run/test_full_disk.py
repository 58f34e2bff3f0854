"""A full disk of a run: no file of the agent can grow, however large its log is."""

import json
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path

from simulators.run.gateway import Gateway
from tests.support.waiting import wait_until

LOG_BYTES = 8 << 20
REQUESTS_MAX = 100
TEXT = "x" * 1_000


def post(gateway: Gateway, number: int) -> int:
    host, port = gateway.http_address
    body = json.dumps({"device": "urn:dev:mac:0000000000000001", "id": number, "data": {"text": TEXT}}).encode()
    request = urllib.request.Request(f"http://{host}:{port}/api/v1/events", body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_disk_is_full_at_once_beside_a_large_log(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_bytes(b"x" * LOG_BYTES)
    with Gateway(tmp_path / "gateway-1", log, "127.0.0.1:1") as gateway:
        assert post(gateway, 0) < HTTPStatus.BAD_REQUEST
        gateway.limit_disk(full=True)
        statuses = {post(gateway, number) for number in range(1, REQUESTS_MAX)}
        assert HTTPStatus.SERVICE_UNAVAILABLE in statuses
        gateway.limit_disk(full=False)
        wait_until(lambda: post(gateway, REQUESTS_MAX) < HTTPStatus.BAD_REQUEST, "an event is accepted")
