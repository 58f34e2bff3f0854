"""Two gateways from one image of a card, with the same name, through the whole job."""

import shutil
from pathlib import Path

import pytest

from agent.status import read_status
from tests.cloud.running import DELTA, POSTGRES, CloudSide
from tests.support.posting_gateway import PostingGateway
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.heavy, pytest.mark.guarantee(5)]


@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_gateways_from_one_image_of_a_card_have_each_event_once_and_the_audit_tells_the_fork(
    cloud: CloudSide, tmp_path: Path
) -> None:
    def gateway(name: str) -> PostingGateway:
        (tmp_path / name).mkdir(exist_ok=True)
        return PostingGateway(tmp_path / name, tmp_path / name / "state", cloud.bootstrap_servers)

    def waiting(name: str) -> int:
        events = read_status(tmp_path / name / "state", "gw1").events
        return events.new + events.forwarded

    first, second = gateway("first"), gateway("second")
    with first.process(cloud.of_gateways), second.process(cloud.of_gateways):
        first.start()
        assert first.post(20) == 200
        first.agent.kill()  # the image is made of a card in use
        shutil.copytree(
            tmp_path / "first" / "state", tmp_path / "second" / "state", ignore=shutil.ignore_patterns("*.sock")
        )
        first.start()
        second.start()
        assert second.post(20) == 200  # the first one's events, which the image has
        assert first.post(20) == second.post(20) == 200  # equal events at both
        assert (first.post(20, 100), second.post(20, 200)) == (200, 200)
        cloud.start()
        for name in ("first", "second"):
            wait_until(lambda name=name: waiting(name) == 0, f"the {name} one has all receipts", 300)  # type: ignore[misc]
    assert cloud.stop() == 0
    sent = [row["fingerprint"] for row in cloud.rows() if row["via"] != "gateway"]
    assert len(sent) == len(set(sent)) == 80
    cloud.audited(0, "--grace", "1h")
    assert "epochs: forked 1, open 2" in (cloud.folder / "audit" / "spark.log").read_text()
