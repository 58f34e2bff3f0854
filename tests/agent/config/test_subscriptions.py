"""Configured subscriptions: their meaning, and which are refused."""

import pytest

from agent.config.subscriptions import Subscription, base_topic, read_subscriptions
from agent.delivery import Media


@pytest.mark.parametrize(
    ("topic", "meant", "not_meant"),
    [
        ("a/b", ["a/b"], ["a", "a/b/c", "a/c", "A/b"]),
        ("a/+/c", ["a/b/c", "a//c"], ["a/b", "a/b/c/d"]),
        ("a/#", ["a", "a/b", "a/b/c"], ["b", "ab"]),
        ("#", ["a", "a/b"], ["$SYS/broker"]),
        ("+/b", ["a/b"], ["$SYS/b"]),
        ("a/{device}/events", ["a/x/events"], ["a/events", "a/x/y/events"]),
    ],
)
def test_a_filter_means_its_topics(topic: str, meant: list[str], not_meant: list[str]) -> None:
    subscription = Subscription(topic, Media.JSON)
    assert [topic for topic in [*meant, *not_meant] if subscription.matches(topic)] == meant


def test_the_topic_names_the_device_where_it_is_told_to() -> None:
    assert Subscription("a/{device}/events", Media.JSON).device("a/urn:dev:ow:1/events") == "urn:dev:ow:1"
    assert Subscription("a/{device}/#", Media.JSON).device("a//events") is None
    assert Subscription("a/+/events", Media.JSON).device("a/b/events") is None


def test_tables_are_read() -> None:
    tables = [{"topic": "a/{device}", "format": "senml-cbor"}, {"topic": "b/#", "format": "json"}]
    assert read_subscriptions(tables) == (Subscription("a/{device}", Media.SENML_CBOR), Subscription("b/#", Media.JSON))
    assert Subscription("a/{device}", Media.CBOR).filter == "a/+"


@pytest.mark.parametrize(
    "table",
    [
        3,
        {"topic": "a"},
        {"topic": "a", "format": 5},
        {"topic": "a", "format": "json", "qos": 1},
        *({"topic": topic, "format": "json"} for topic in ("", "a/#/b", "a#", "a+/b", "x{device}", "$share/g/a", 5)),
        {"topic": "{device}/{device}", "format": "json"},
    ],
)
def test_a_mistake_is_refused(table: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        read_subscriptions([table])


def test_subscriptions_are_a_list() -> None:
    with pytest.raises(ValueError, match="expected tables"):
        read_subscriptions({"topic": "a", "format": "json"})


@pytest.mark.parametrize("topic", ["a/", "/a", "a/+", "#", "{device}", 3])
def test_a_base_topic_is_plain(topic: object) -> None:
    with pytest.raises(ValueError, match="without wildcards"):
        base_topic(topic)
