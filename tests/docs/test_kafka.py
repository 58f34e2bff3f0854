"""The page on Kafka says what the agent says, and its arithmetic is right."""

import re

from agent.forward.topic import create_command
from contract import topics
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "kafka.md").read_text()
EVENTS_PER_SECOND_OF_A_GATEWAY = 20 / 60
BYTES_COMPRESSED = 300
REPLICAS = 3
QUESTIONS = 3
POLL_SECONDS = 30


def test_the_command_that_creates_the_topic_is_the_agents() -> None:
    assert create_command("kafka-1:9092", topics.EVENTS) in PAGE


def test_every_setting_of_the_topic_has_its_reason() -> None:
    assert [name for name in topics.settings() if f"| `{name}" not in PAGE] == []


def test_the_sizes_follow_from_what_is_assumed() -> None:
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,.]+) \| ([\d,.]+) \| ([\d,.]+) \| ([\d,]+) \|", PAGE, re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        gateways, events, megabytes, terabytes, questions = (float(cell.replace(",", "")) for cell in row)
        rate = gateways * EVENTS_PER_SECOND_OF_A_GATEWAY
        kept = rate * BYTES_COMPRESSED * topics.RETENTION_DAYS_MIN * 86_400 * REPLICAS / 1e12
        assert abs(events - rate) <= 1
        assert abs(megabytes - rate * BYTES_COMPRESSED / 1e6) <= 0.11 * megabytes
        assert abs(terabytes - kept) <= 0.11 * terabytes
        assert questions == gateways * QUESTIONS / POLL_SECONDS
