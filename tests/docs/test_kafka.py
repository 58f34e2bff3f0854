"""docs/kafka.md agrees with the agent's messages."""

from agent.config.settings import KafkaSettings
from agent.forward.kafka.topic import create_command
from contract import topics
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "kafka.md").read_text()


def test_the_command_that_creates_the_topic_is_the_agents() -> None:
    assert create_command(KafkaSettings("kafka-1:9092", topics.EVENTS)) in PAGE


def test_every_setting_of_the_topic_has_its_reason() -> None:
    assert [name for name in topics.settings() if f"| `{name}" not in PAGE] == []
