"""A full disk of a run: no file of the agent can grow, however large its log is."""

from http import HTTPStatus
from pathlib import Path

from simulators.run.gateway import Gateway
from tests.support import agent_process
from tests.support.waiting import wait_until

LOG_BYTES = 8 << 20
REQUESTS_MAX = 100
TEXT = "x" * 1_000


def post(gateway: Gateway, number: int) -> int:
    event = {"device": "urn:dev:mac:0000000000000001", "id": number, "data": {"text": TEXT}}
    return agent_process.post(gateway.http_address[1], event)


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
