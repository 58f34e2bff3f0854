"""The configuration, with lanes and subscriptions: which values are read or refused, and the messages."""

import re
import tomllib
import unicodedata
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import pytest

from agent.config.lanes import LANES_MAX, Lane, read_lanes
from agent.config.load import SECTIONS, Source, key_of, parse
from agent.config.mistakes import ConfigurationError
from agent.config.origins import settings_hash
from agent.config.reference import example
from agent.config.settings import CoapSettings, DevicesSettings, HttpSettings, Settings
from agent.config.subscriptions import Subscription
from agent.delivery import Media

MINIMAL = {"gateway": {"id": "gw1"}, "kafka": {"bootstrap_servers": "localhost:9092"}}
MAPPING = {"name": "acme", "device": "d", "data": "body"}
WITHOUT_LOGIN = "expected an address without user and password, .*_file$"
ALARMS = {"name": "alarms", "priority": 10, "type": "alarm*"}


def read(document: dict[str, object], environment: dict[str, str] | None = None) -> Settings:
    return parse({**MINIMAL, **document}, Source("test.toml"), environment or {})


@pytest.mark.parametrize("bind", ["[::]:5683", "[fe80::1%eth0]:5683", "0.0.0.0:0", "127.0.0.1:65535"])
def test_an_address_to_listen_on_is_read(bind: str) -> None:
    assert read({"coap": {"bind": bind}}).coap.bind == bind


@pytest.mark.parametrize(
    "servers", ["a", "a:1, b-2.example:65535,", "SASL_SSL://[fe80::1%eth0]:9093", "[::1]", "10.0.0.1:9"]
)
def test_the_addresses_of_brokers_are_read(servers: str) -> None:
    assert read({"kafka": {"bootstrap_servers": servers}}).kafka.bootstrap_servers == servers


def test_the_environment_overrides_the_file() -> None:
    settings = read({}, {"ONCEGATE_RECEIPTS__POLL_SECONDS": "5s", "ONCEGATE_COAP__ENABLED": "false", "HOME": "/"})
    assert (settings.receipts.poll_seconds, settings.coap.enabled) == (5, False)
    assert read({}, {"ONCEGATE_DEVICES__ALLOW": "urn:a:*,urn:b"}).devices.allow == ("urn:a:*", "urn:b")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_pattern_matches_names_in_any_spelling_of_its_letters(form: Literal["NFC", "NFD"]) -> None:
    written = unicodedata.normalize(form, "urn:x:Küche-*")
    settings = read(
        {
            "devices": {"allow": [written], "deny": written},
            "identity": {"rules": [{"device": written, "fields": ["device", "id"]}]},
            "forward": {"lanes": [{"name": "a", "priority": 1, "device": written, "type": written}]},
        }
    )
    devices, (rule,), (lane,) = settings.devices, settings.identity.rules, settings.forward.lanes
    for pattern in (*devices.allow, *devices.deny, rule.device, lane.device, lane.type):
        assert fnmatchcase(unicodedata.normalize("NFC", "urn:x:Küche-1"), pattern)


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"coap": {"bnd": "x"}}, r"\[coap\] bnd: unknown key; did you mean bind\?"),
        ({"kafak": {}}, r"unknown section \[kafak\]; did you mean kafka\?"),
        ({"gateway": {}}, r"\[gateway\] id: missing"),
        ({"gateway": {"id": "a b"}}, r"\[gateway\] id: expected a name .* found 'a b'"),
        ({"gateway": {"id": "a", "clock": "sun"}}, "expected one of kernel, trusted; found 'sun'"),
        ({"store": {"max_bytes": "lots"}}, r"\[store\] max_bytes: expected a size"),
        ({"store": {"commit_events_max": 0}}, "1 or more"),
        ({"identity": {"retention": "7 weeks"}}, "expected a duration"),
        ({"coap": {"enabled": "perhaps"}}, "expected true or false"),
        ({"kafka": {"bootstrap_servers": "a", "properties": 3}}, "expected a table"),
        *[
            (
                {"kafka": {"bootstrap_servers": "a", "topic": topic}},
                r"\[kafka\] topic: expected a topic of Kafka: .* found",
            )
            for topic in ("", "..", "a topic", "sensoren/ü", "t" * 250, 3)
        ],
        ({"kafka": {"bootstrap_servers": "a:1,SASL_SSL://u:p@b:1"}}, rf"\[kafka\] \w+: {WITHOUT_LOGIN}"),
        ({"mqtt": {"host": "u:p@b"}}, rf"\[mqtt\] \w+: {WITHOUT_LOGIN}"),
        ({"mqtt": {"username": "u", "password_file": 12345678}}, "expected the path of a file, .*secrets$"),
        ({"mqtt": {"username": "u", "password_file": "credential:my pw"}}, r"password_file: (?!.*my pw)"),
        ({"coap": 3}, "expected a table"),
        ({"devices": {"allow": "urn:a,,urn:b"}}, r"\[devices\] allow: expected a list of patterns"),
        ({"mqtt": {"version": 4}}, "expected one of 5, 3.1.1; found 4"),
        *[
            ({section: {"bind": bind}}, rf"\[{section}\] bind: expected an address and a port such as .* found")
            for section in ("coap", "http")
            for bind in (
                "5683",
                "gateway.local:5683",
                ":15683",
                "[::]:99999",
                "::1:5683",
                "[127.0.0.1]:1",
                "1.2.3:4",
                5683,
            )
        ],
        *[
            (
                {"kafka": {"bootstrap_servers": servers}},
                r"\[kafka\] bootstrap_servers: expected brokers such as .*65535$",
            )
            for servers in ("", ",", "a;9092", "a:port", "a:99092", "a:0", "a:1,:2", "a b:1", "::1", "a:1;b:2", ["a:1"])
        ],
        *[
            ({section: {"max_body_bytes": 0}}, r"max_body_bytes: expected a size such as .*1 byte or more; found 0")
            for section in ("coap", "http", "mqtt")
        ],
        ({"receipts": {"poll_seconds": "0s"}}, "poll_seconds: expected a duration such as .*longer than 0; found '0s'"),
        ({"mqtt": {"port": 0}}, "expected a port"),
        ({"mqtt": {"session_expiry": 0}}, "session_expiry: expected a second at least"),
        ({"mqtt": {"tls_ca_file": "/ca"}}, r"\[mqtt\] tls_ca_file.*expected only with tls = true"),
        ({"mqtt": {"tls": True, "tls_key_file": "/k"}}, "tls_key_file: expected only with tls_certificate_file"),
        ({"mqtt": {"password_file": "/p"}}, "password_file: expected only with username"),
        ({"mqtt": {"enabled": True, "base_topic": ""}}, "expected a base_topic or at least one"),
        *[({"mqtt": {"base_topic": topic}}, "without wildcards") for topic in ("a/", "/a", "a/+", "#", "{device}", 3)],
        ({"mqtt": {"subscriptions": {"topic": "a", "format": "json"}}}, "expected tables with topic"),
        *[
            ({"mqtt": {"subscriptions": [table]}}, r"\[mqtt\] subscriptions: .*expected")
            for table in (
                3,
                {"topic": "a"},
                {"topic": "a", "format": 5},
                {"topic": "a", "format": "json", "qos": 1},
                *(
                    {"topic": topic, "format": "json"}
                    for topic in ("", "a/#/b", "a#", "a+/b", "x{device}", "$share/g/a", 5)
                ),
                {"topic": "{device}/{device}", "format": "json"},
            )
        ],
        *[
            ({"forward": {"lanes": lanes}}, rf"\[forward\] lanes: .*{reason}")
            for lanes, reason in (
                ({}, "expected tables"),
                ([{"name": "a", "priority": 1}], "device or type"),
                ([{"name": "a", "type": "b"}], "priority"),
                ([ALARMS | {"topic": "x"}], "not 'topic'"),
                ([ALARMS | {"name": "../up"}], "lower-case"),
                ([ALARMS | {"name": "default"}], "not default"),
                ([ALARMS | {"priority": "high"}], "whole number"),
                ([ALARMS | {"priority": True}], "whole number"),
                ([ALARMS | {"device": ""}], "text"),
                ([ALARMS | {"time_to_live": "soon"}], "time_to_live: expected a duration"),
                ([ALARMS | {"time_to_live": 0}], "time_to_live: .* longer than 0"),
                ([ALARMS | {"gather": "soon"}], "duration"),
                ([ALARMS, ALARMS], "of its own"),
                ([ALARMS | {"name": f"lane-{n}"} for n in range(LANES_MAX + 1)], f"{LANES_MAX} lanes at most"),
            )
        ],
        *[
            ({"identity": {"rules": [table]}}, rf"\[identity\] .*{reason}")
            for table, reason in (
                ("device", "expected tables"),
                ({"device": "a"}, "expected tables"),
                ({"fields": ["device"]}, "expected tables"),
                ({"device": "a", "felds": ["device"]}, "'felds'"),
                ({"device": "a", "fields": ["device", "units"]}, "expected as fields some of device, type"),
                ({"device": "a", "fields": ["device", "device"]}, "each once"),
                ({"device": "a", "fields": ["id"]}, "expected device among"),
                ({"device": "a", "ambiguous": "guess"}, "expected as ambiguous"),
                ({"device": "a", "ambiguous": "drop"}, "expected window together"),
                ({"device": "a", "fields": ["device"], "window": "5s"}, "expected window together"),
                ({"device": "a", "ambiguous": "drop", "window": 0}, "window: .* longer than 0"),
                ({"device": "a", "ambiguous": "drop", "window": "soon"}, "a duration"),
                ({"device": "a", "ambiguous": "drop", "window": "8d"}, "no longer than retention"),
            )
        ],
        (
            {"mqtt": {"subscriptions": [{"topic": "a", "format": "tasmoto"}]}},
            "unknown format 'tasmoto'; did you mean tasmota",
        ),
        ({"mappings": [{**MAPPING, "data": "body..x"}]}, r"mappings: entry 1: acme: data: 'body\.\.x'"),
        ({"mappings": [MAPPING, MAPPING]}, "acme: expected another name"),
        ({"mappings": [{**MAPPING, "name": "tasmota"}]}, "tasmota: expected another name"),
        ({"mappings_dir": "/none"}, "mappings_dir: /none: cannot be read"),
    ],
)
def test_a_mistake_is_named_with_its_place(document: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read(document)


def test_the_example_lists_every_option_in_a_form_that_is_accepted() -> None:
    sections = dict(re.findall(r"^\[([a-z.]+)\]\n(.*?)(?=\n\n|\Z)", example(), re.MULTILINE | re.DOTALL))
    for name, kind in SECTIONS.items():
        for key in map(key_of, fields(kind)):
            text, table = (sections[name], rf"{name}\.{key}") if name else (example(), key)
            assert re.search(rf"^# (?:{key} =|\[\[{table}\]\]$)", text, re.MULTILINE), (name, key)
    written = re.sub(r"^# (?=\[\[|[a-z_]+ = .)", "", example(), flags=re.MULTILINE)
    settings = parse(tomllib.loads(written), Source("example"), {})
    assert (settings.gateway.id, settings.coap, settings.http) == ("gw1", CoapSettings(), HttpSettings())
    assert len(settings.mqtt.subscriptions) == len(settings.identity.rules) == len(settings.forward.lanes) == 1
    assert settings.kafka.properties
    assert [mapping.name for mapping in settings.mappings.own] == ["acme"]


def test_a_credential_is_what_systemd_hands_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document: dict[str, object] = {"http": {"token_file": "credential:tokens"}}
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert read(document).http.token_file == Path("/etc/oncegate/secrets/tokens")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read(document).http.token_file == tmp_path / "secret_tokens"
    with pytest.raises(ConfigurationError, match="expected credential:NAME"):
        read({"http": {"token_file": "credential:../shadow"}})


def test_a_subscription_has_its_mapping_from_the_file_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text('[[mappings]]\nname = "more"\ndevice = "d"\nid = "body.n"\ndata = "body"\n')
    subscriptions = [{"topic": name, "format": name} for name in ("acme", "more", "tasmota", "json")]
    document: dict[str, object] = {
        "mappings": [MAPPING],
        "mappings_dir": str(tmp_path),
        "mqtt": {"subscriptions": subscriptions},
    }
    read_ones = read(document).mqtt.subscriptions
    assert [getattr(one.media, "name", None) for one in read_ones] == ["acme", "more", "tasmota", "JSON"]
    assert [one.identifies for one in read_ones] == [False, True, True, True]


def test_the_hash_of_the_settings_differs_with_each_value_but_the_id_and_secrets() -> None:
    def hashed(changed: dict[str, dict[str, object]], secret: str = "a", linger: str = "5") -> str:
        properties = {"linger.ms": linger, "ssl.key.password": secret}
        kafka = {**MINIMAL["kafka"], "properties": properties, **changed.get("kafka", {})}
        return settings_hash(read({**changed, "kafka": kafka}))

    equal: dict[str, dict[str, object]] = {"gateway": {"id": "gw2"}, "kafka": {"topic": "oncegate.events"}}
    others: list[dict[str, dict[str, object]]] = [
        {"store": {"when_full": "drop-oldest"}},
        {"devices": {"deny": ["a"]}},
        {"kafka": {"hours": ["22:00-06:00"]}},
    ]
    assert hashed({}) == hashed(equal, secret="b")
    assert len({hashed({}), hashed({}, linger="6"), *map(hashed, others)}) == 5
    devices = (DevicesSettings(), DevicesSettings(deny=("a",)))  # as the settings of a way in of another package
    assert len({settings_hash(replace(read({}), sources={"plc": one})) for one in devices}) == 2


def test_lanes_are_read_in_their_order() -> None:
    doors = {"name": "doors", "priority": -1, "device": "urn:door:*", "type": "open", "time_to_live": "2h", "gather": 9}
    assert read_lanes([ALARMS, doors]) == (
        Lane("alarms", 10, type="alarm*"),
        Lane("doors", -1, device="urn:door:*", type="open", time_to_live_seconds=7_200.0, gather_seconds=9.0),
    )


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
