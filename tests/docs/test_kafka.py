"""docs/kafka.md agrees with the agent's messages, and its arithmetic is right."""

import json
import math
import re

from agent.config.settings import KafkaSettings
from agent.forward.kafka.topic import create_command
from contract import topics
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "kafka.md").read_text()
EVENTS_PER_SECOND_OF_A_GATEWAY = 20 / 60
BYTES_COMPRESSED = 300
REPLICAS = 3
QUESTIONS = 3
POLL_SECONDS = 30
KEPT = json.loads((ROOT / "docs" / "benchmarks" / "job.json").read_text())["figures"]
CORES = 2
TRIGGER_SECONDS = 2
WINDOW_SECONDS = {"10m": 600, "1h": 3_600}


def test_the_command_that_creates_the_topic_is_the_agents() -> None:
    assert create_command(KafkaSettings("kafka-1:9092", topics.EVENTS)) in PAGE


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


def test_the_cores_of_the_job_follow_from_its_window_and_the_measured_curve() -> None:
    [curve] = [one["details"]["seconds_by_keys"] for one in KEPT if one["name"] == "batch of 2,000 keys, state empty"]
    [bytes_per_key] = [one["value"] for one in KEPT if one["name"].startswith("state, disk, ")]
    measured = {int(keys): seconds for keys, seconds in curve.items()}
    most, empty = max(measured), measured[0]
    core_seconds = (measured[most] - empty) * CORES / most
    assert f"{core_seconds * 1e6:.2f} core seconds of every batch" in PAGE
    assert f"Each million of them takes {bytes_per_key:.0f} MB" in PAGE
    cells = re.findall(r"^\| ([\d,]+) \| (10m|1h) \| ([\d.]+) \| ([\d,]+) \| ([\d.]+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(cells) == 8
    for rate, window, millions, megabytes, seconds, cores in cells:
        keys = 2 * WINDOW_SECONDS[window] * int(rate.replace(",", ""))
        assert abs(float(millions) - keys / 1e6) <= 0.005
        assert abs(float(megabytes.replace(",", "")) - keys * bytes_per_key / 1e6) <= 0.5
        assert abs(float(seconds) - (empty + keys * core_seconds / CORES)) <= 0.05
        assert int(cores) == math.ceil(keys * core_seconds / TRIGGER_SECONDS)
